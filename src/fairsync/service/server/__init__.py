"""The HTTP server: middleware, codec, micro-batching and routes.

- app.py puts all together. A call goes through the middleware: request_context.py, tracing.py, access_log.py,
  error_handling.py, timeout.py, access_control.py (with caller.py and rate_limit.py), body_limit.py.
- operations.py dispatches it to one of the operations in routes_*.py, which openapi.py describes. request_body.py and
  codec.py decode bodies, large ones in decode_process.py; validation_messages.py says what is wrong with them, and
  problems.py how errors are answered.
- micro_batching.py searches for many calls at once, under the rules that rules.py has checked; histories.py makes user
  vectors. shared_answer.py gives many callers one answer, and cancellation.py ends work that nobody waits for.
- prometheus.py, json_logging.py and trace_*.py tell what happened.
"""
