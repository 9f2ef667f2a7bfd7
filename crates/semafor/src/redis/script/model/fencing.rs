//! Fencing tokens grow even if the server has lost them.

use semafor_testkit::redis::RedisServer;

use super::clock::{FOREVER, START, TICKS_PER_SECOND, seconds};
use super::request::{ONE_SLOT, Queue};
use super::scripts::{Operation, Scripts, id_of, texts};

/// The clock is set back, and the server has forgotten its tokens. Processes have not.
#[test]
fn token_is_above_those_that_the_process_has_seen() {
    let server = RedisServer::start();
    let scripts = &mut Scripts::new(&server);
    let slot_for = |scripts: &mut Scripts, number: usize, floor: u64| -> u64 {
        let request =
            Queue { is_try: true, is_open: number.is_multiple_of(2), floor, ..Queue::new(number, ONE_SLOT) };
        let words = scripts.run(Operation::Queue, &request.arguments()).words();
        assert_eq!(words[0], "granted", "{words:?}");
        words[4].parse().expect("a token")
    };
    let release = |scripts: &mut Scripts, number: usize| {
        scripts.run(Operation::Release, &texts([&id_of(number), &"released", &0]));
    };
    scripts.clear();
    scripts.now = START + 3600 * TICKS_PER_SECOND;
    let ahead = slot_for(scripts, 0, 0);

    // Tokens in the request count, on the fast path and on the slow one, also for later requests.
    scripts.clear();
    let token = slot_for(scripts, 1, ahead);
    assert_eq!(token, ahead + 1);
    release(scripts, 1);
    let token = slot_for(scripts, 2, ahead + 10);
    assert_eq!(token, ahead + 11);
    release(scripts, 2);
    assert_eq!(slot_for(scripts, 3, 0), ahead + 12);

    // Tokens in a heartbeat count.
    scripts.clear();
    assert!(slot_for(scripts, 4, 0) < ahead);
    scripts.run(Operation::Ping, &texts([&1, &ahead, &id_of(4), &1, &seconds(FOREVER), &0, &0]));
    release(scripts, 4);
    assert_eq!(slot_for(scripts, 5, 0), ahead + 1);
    // Tokens in a confirmation count.
    let seen = scripts.run(Operation::Acquire, &texts([&id_of(5), &(ahead + 20)]));
    assert_eq!(seen.words()[4], (ahead + 21).to_string());
    let seen = scripts.run(Operation::Acquire, &texts([&id_of(5), &ahead]));
    assert_eq!(seen.words()[4], (ahead + 21).to_string(), "the same from then on");
}
