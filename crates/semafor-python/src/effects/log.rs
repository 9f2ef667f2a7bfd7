//! Sends the lines that programs log to Python's `logging`: the logger `semafor.effects`, at level `INFO`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::{Bound, intern};
use semafor_coop::Ctx;

const INFO: u8 = 20;

/// # Errors
///
/// The exceptions of the user's logging handlers.
pub(crate) fn emit(py: Python<'_>, ctx: &Ctx, text: &str) -> PyResult<()> {
    let logger = logger(py)?;
    if !logger.call_method1(intern!(py, "isEnabledFor"), (INFO,))?.is_truthy()? {
        return Ok(());
    }
    let line = ("%.3f %s: %s", ctx.now().as_secs_f64(), ctx.task().to_string(), text);
    logger.call_method1(intern!(py, "info"), line).map(drop)
}

fn logger(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static LOGGER: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let named = || {
        let logging = py.import(intern!(py, "logging"))?;
        logging.call_method1(intern!(py, "getLogger"), (intern!(py, "semafor.effects"),)).map(Bound::unbind)
    };
    Ok(LOGGER.get_or_try_init(py, named)?.bind(py))
}
