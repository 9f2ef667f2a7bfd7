//! The setup of all measurements: one server, and for ours one runtime with one connection of each kind.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, cmd};
use semafor::{Home, Semaphore};
use semafor_testkit::redis::RedisServer;
use tokio::runtime::{Builder, Runtime};

pub(super) struct Setup {
    pub(super) server: RedisServer,
    runtime: Runtime,
    home: Home,
    trip: Trip,
}

/// A round trip with a minimal script: the lower bound for every script.
#[derive(Clone)]
pub(super) struct Trip {
    connection: MultiplexedConnection,
    digest: String,
}

impl Setup {
    pub(super) fn set() -> Self {
        let server = RedisServer::start();
        let runtime = runtime();
        let (home, trip) = runtime.block_on(async {
            let home = Home::connect(&server.url()).await.expect("the server answers");
            (home, Trip::prepare(&server.url()).await)
        });
        Self { server, runtime, home, trip }
    }

    /// Runs `work` as a task: on a worker, where users' code runs.
    pub(super) fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.runtime.block_on(self.runtime.spawn(work)).expect("the work does not panic")
    }

    pub(super) fn semaphore(&self, name: &str, slots: u32) -> Semaphore {
        let builder = self.home.named(name).slots(slots);
        self.runtime.block_on(builder.open()).expect("the name is free")
    }

    pub(super) fn trip(&self) -> Trip {
        self.trip.clone()
    }
}

pub(super) fn runtime() -> Runtime {
    Builder::new_multi_thread().enable_all().build().expect("a runtime")
}

impl Trip {
    /// With the settings of our own connection.
    async fn prepare(url: &str) -> Self {
        let client = Client::open(format!("{url}?protocol=resp3")).expect("a valid address");
        let options = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(1024);
        let connection = client.get_multiplexed_async_connection_with_config(&options).await;
        let mut connection = connection.expect("the server answers");
        let digest = cmd("SCRIPT").arg("LOAD").arg("return 1").query_async(&mut connection).await;
        Self { digest: digest.expect("the script is valid"), connection }
    }

    pub(super) async fn take(&mut self) {
        let mut command = cmd("EVALSHA");
        command.arg(&self.digest).arg(1).arg("floor");
        let answer: i64 = command.query_async(&mut self.connection).await.expect("the server answers");
        assert_eq!(answer, 1);
    }
}

/// Returns when so many waiters are in line, according to the server. Asks once more then: by the second answer, all
/// that the waiters had to send has been sent.
pub(super) async fn until_queued(semaphore: &Semaphore, waiters: usize) {
    let mut seen = 0;
    while seen < 2 {
        let waiting = semaphore.stats().await.expect("the server answers").waiting;
        if waiting == waiters {
            seen += 1;
        } else if waiters > 1 {
            // Counting a long line takes the server some time.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub(super) fn micros_since(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / 1e3
}
