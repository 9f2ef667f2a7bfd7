//! Runs random steps, and reports the steps up to a failure.

use std::fmt::Debug;

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm, TestCaseResult, TestError, TestRunner};
use semafor_testkit::redis::RedisServer;

use super::scripts::Scripts;

/// Adds the steps up to the error to its message.
pub(super) fn with_steps<M: Debug>(slots: u32, steps: &[M], error: TestCaseError) -> TestCaseError {
    let steps: String = steps.iter().map(|step| format!("\n  {step:?}")).collect();
    TestCaseError::fail(format!("{error}\nwith {slots} slots, after{steps}"))
}

/// Runs `cases` random sequences of steps on one server.
pub(super) fn run_random<G: Debug>(
    cases: u32,
    runs: impl Strategy<Value = G>,
    run_one: impl Fn(&mut Scripts, G) -> TestCaseResult,
) {
    let server = RedisServer::start();
    let scripts = std::cell::RefCell::new(Scripts::new(&server));
    let default = ProptestConfig::with_source_file(file!());
    let config = ProptestConfig {
        cases: if default.cases == 256 { cases } else { default.cases },
        rng_algorithm: RngAlgorithm::XorShift,
        max_shrink_iters: default.max_shrink_iters.min(2_000),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..default
    };
    let outcome = TestRunner::new(config).run(&runs, |steps| {
        let mut scripts = scripts.borrow_mut();
        scripts.clear();
        run_one(&mut scripts, steps)
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, _) | TestError::Abort(why)) => panic!("{why}"),
    }
}
