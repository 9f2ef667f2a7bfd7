//! Closing a name with a long line.

use semafor_testkit::redis::RedisServer;

use super::clock::{FOREVER, seconds};
use super::request::{AcquireRequest, ONE_SLOT, Queue};
use super::scripts::{Operation, Scripts, id_of, texts};
use crate::redis::script::schema::ending::CLOSED;

/// Otherwise the server could not answer other clients meanwhile.
#[test]
fn long_line_is_turned_away_in_steps() {
    let server = RedisServer::start();
    let scripts = &mut Scripts::new(&server);
    scripts.clear();
    scripts.run(Operation::Open, &texts([&1, &-1]));
    let ask = |number: usize, weight: u32| {
        let request = AcquireRequest { weight, ..ONE_SLOT };
        Queue { slots: 100, ..Queue::new(number, request) }.arguments()
    };
    scripts.run(Operation::Resize, &texts([&100]));
    scripts.run(Operation::Queue, &ask(0, 100));
    // A client of the Python library, and a weight whose parts are on two pages.
    let theirs = "4b0c0ffee00000000000000000000000";
    let [.., line, beats] = &scripts.keys.all[..5] else { unreachable!("ten keys") };
    let (line, beats) = (line.clone(), beats.clone());
    for key in [&line, &beats] {
        redis::cmd("ZADD").arg(key).arg("1").arg(theirs).exec(&mut scripts.connection).expect("a server");
        redis::cmd("EXPIRE").arg(key).arg(100).exec(&mut scripts.connection).expect("a server");
    }
    redis::cmd("ZADD").arg(&beats).arg("inf").arg(theirs).exec(&mut scripts.connection).expect("a server");
    for number in 1..=470 {
        scripts.run(Operation::Queue, &ask(number, 1));
    }
    scripts.run(Operation::Queue, &ask(471, 60));
    for number in 472..=700 {
        scripts.run(Operation::Queue, &ask(number, 1));
    }

    assert_eq!(scripts.run(Operation::Close, &texts([&0])).words(), ["471", "1"]);
    // The client that closed it has died. The other waiters learn of it from their heartbeats.
    let seen = scripts.run(Operation::Ping, &texts([&0, &0, &id_of(600), &1, &seconds(FOREVER)]));
    assert_eq!(seen.words()[3..], texts([&"gone", &CLOSED]));
    assert_eq!(scripts.run(Operation::Close, &texts([&1])).words(), ["228", "-1"]);
    let left: Vec<String> =
        redis::cmd("ZRANGE").arg(&line).arg(0).arg(-1).query(&mut scripts.connection).expect("a server");
    assert_eq!(left, [theirs]);
}
