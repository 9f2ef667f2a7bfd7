//! The Redis home passes the conformance suite.

use std::time::Duration;

use semafor::{BuildError, Home as Connection, Semaphore};
use semafor_testkit::redis::RedisServer;
use semafor_testkit::{Home, Spec};

/// A server of its own. Time passes by itself.
struct Redis {
    home: Connection,
    _server: RedisServer,
}

impl Redis {
    async fn new() -> Self {
        let server = RedisServer::start();
        let home = Connection::connect(&server.url()).await.expect("it answers");
        Self { home, _server: server }
    }
}

impl Home for Redis {
    async fn open(&self, spec: Spec) -> Result<Semaphore, BuildError> {
        spec.clone().say_to(self.home.named(spec.name)).open().await
    }

    fn build(&self, spec: Spec) -> Result<Semaphore, BuildError> {
        spec.clone().say_to(self.home.named(spec.name)).build()
    }

    /// Returns when everything that was due has ended: the server's clock and ours differ by less than a round trip.
    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time + Duration::from_millis(50)).await;
    }
}

semafor_testkit::conformance!(Redis::new().await);
