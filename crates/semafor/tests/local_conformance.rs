//! The local home passes the conformance suite.

use std::thread::JoinHandle;
use std::time::Duration;

use semafor::local::{self, Agent, Config};
use semafor::{BuildError, Home as Connection, HomeError, Semaphore};
use semafor_testkit::{Home, Spec};

/// An agent of its own, in a thread. Time passes by itself.
struct Local {
    config: Config,
    home: Connection,
    agent: Option<JoinHandle<Result<(), HomeError>>>,
    _folder: tempfile::TempDir,
}

impl Local {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let place = folder.path().join("semafor");
        let agent = Agent::bind(&place).expect("there is none yet");
        let agent = Some(std::thread::spawn(move || agent.serve()));
        let config = Config::default().directory(place);
        Self { home: Connection::local(config.clone()), config, agent, _folder: folder }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let stopped = pollster::block_on(local::stop(&self.config, true));
        if let Some(agent) = self.agent.take() {
            let ended = agent.join();
            if !std::thread::panicking() {
                stopped.expect("it answers");
                ended.expect("it does not panic").expect("it serves to its end");
            }
        }
    }
}

impl Home for Local {
    async fn open(&self, spec: Spec) -> Result<Semaphore, BuildError> {
        spec.clone().say_to(self.home.named(spec.name)).open().await
    }

    fn build(&self, spec: Spec) -> Result<Semaphore, BuildError> {
        spec.clone().say_to(self.home.named(spec.name)).build()
    }

    /// Returns when everything that was due has ended.
    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time + Duration::from_millis(50)).await;
    }
}

semafor_testkit::conformance!(Local::new());
