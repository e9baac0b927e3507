"""Colours and markers of methods in all figures (Okabe and Ito, which colour-blind readers can distinguish)."""

from __future__ import annotations

from fairsync.report.plot import GREY

# Our methods have the strongest colours; retrieval without floors is grey.
COLOURS: dict[str, str] = {
    "none": GREY,
    "regularized-fair": "#E69F00",
    "ipw": "#CC79A7",
    "k-neighbor": "#56B4E9",
    "uncalibrated": "#009E73",
    "fairsync": "#0072B2",
    "guaranteed": "#D55E00",
}
# Where points lie on top of each other, or colours are not printed, the shape tells.
MARKERS: dict[str, str] = {
    "none": "x",
    "regularized-fair": "v",
    "ipw": "^",
    "k-neighbor": "s",
    "uncalibrated": "P",
    "fairsync": "D",
    "guaranteed": "o",
}
