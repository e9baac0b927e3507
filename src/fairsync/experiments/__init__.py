"""The paper's tables and figures, and what it leaves out: one module each, and the report that binds them."""
