//! Exceptions and the warning category, as `truegauge` exports them.

use pyo3::exceptions::{PyException, PyUserWarning};

pyo3::create_exception!(
    truegauge,
    TruegaugeError,
    PyException,
    "Something could not be done; raised only where a call documents it, or with `strict=True`."
);
pyo3::create_exception!(
    truegauge,
    RefusedError,
    TruegaugeError,
    "With `strict=True`: a point was refused. Without it the point is counted and warned of once."
);
pyo3::create_exception!(
    truegauge,
    TruegaugeWarning,
    PyUserWarning,
    "Something worked with less than was asked for; said once per cause."
);
