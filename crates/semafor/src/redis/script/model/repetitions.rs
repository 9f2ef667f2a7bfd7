//! Requests that are repeated, and what that does to other calls.

use redis::cmd;
use semafor_testkit::redis::RedisServer;

use super::clock::{FOREVER, TICKS_PER_SECOND, seconds};
use super::request::{ONE_SLOT, Queue};
use super::scripts::{Operation, Scripts, id_of, texts};

fn ask(scripts: &mut Scripts, number: usize, slots: u32, again: bool) -> Vec<String> {
    let request = Queue { slots, again, ..Queue::new(number, ONE_SLOT) };
    scripts.run(Operation::Queue, &request.arguments()).words()
}

fn release(scripts: &mut Scripts, number: usize, by_another: bool) {
    let arguments = texts([&id_of(number), &"released", &u8::from(by_another), &0]);
    assert_eq!(scripts.run(Operation::Release, &arguments).words()[0], "ended");
}

/// It was granted its slot, and another process released that before its own process knew: then it asks again.
#[test]
fn waiter_whose_unknown_grant_another_process_released_returns() {
    let server = RedisServer::start();
    let scripts = &mut Scripts::new(&server);
    scripts.clear();
    assert_eq!(ask(scripts, 0, 1, false)[0], "granted");
    assert_eq!(ask(scripts, 1, 1, false)[0], "queued");
    assert_eq!(ask(scripts, 1, 1, true)[0], "queued");
    release(scripts, 0, false);
    release(scripts, 1, true);
    assert_eq!(ask(scripts, 1, 1, false), ["closed"], "an attempt that comes late");
    assert_eq!(ask(scripts, 1, 1, true)[0], "granted");
    release(scripts, 1, false);
    assert_eq!(ask(scripts, 1, 1, true), ["closed"], "an attempt that comes late");
}

/// Otherwise the grants of many repeated requests would keep the fast paths closed, one after the other.
#[test]
fn end_of_a_repeated_request_closes_the_fast_paths_for_no_longer() {
    let server = RedisServer::start();
    let scripts = &mut Scripts::new(&server);
    scripts.clear();
    assert_eq!(ask(scripts, 0, 2, true)[0], "granted");
    let field = |scripts: &mut Scripts| {
        let words = scripts.run(Operation::Snapshot, &[]).words();
        let at = words.iter().position(|word| word == "unwanted").expect("a field");
        words[at + 1].clone()
    };
    let before = field(scripts);
    scripts.now += 50 * TICKS_PER_SECOND;
    release(scripts, 0, false);
    assert_eq!(field(scripts), before);
}

/// The bits of the numbers are still there, but no record has them.
#[test]
fn slot_numbers_are_known_again_after_all_records_were_lost() {
    let server = RedisServer::start();
    let scripts = &mut Scripts::new(&server);
    scripts.clear();
    let grants: Vec<_> = (0..3).map(|number| ask(scripts, number, 3, false)).collect();
    cmd("DEL").arg(&scripts.keys.all[6]).exec(&mut scripts.connection).expect("a server");
    let mut arguments = texts([&grants.len(), &0]);
    for (number, words) in grants.iter().enumerate() {
        arguments.extend(texts([&id_of(number), &1, &seconds(FOREVER), &words[3], &words[4]]));
    }
    scripts.run(Operation::Ping, &arguments);
    release(scripts, 0, false);
    release(scripts, 2, false);
    assert_eq!(ask(scripts, 10, 3, false)[3], "0");
    assert_eq!(ask(scripts, 11, 3, false)[3], "2", "the other one has number 1");
}
