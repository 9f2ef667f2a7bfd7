//! The simulated server answers commands and scripts as a real one does.

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;
use proptest::sample::select;
use redis::{Commands, Connection, Value, cmd};
use semafor_testkit::redis::RedisServer;
use semafor_testkit::simulation::redis::{Scripts, Store};

type Words = Vec<String>;

fn words(parts: &[&str]) -> Words {
    parts.iter().map(|part| (*part).to_owned()).collect()
}

/// Few keys and members, so that commands meet; and of more than one type, so that some are refused.
fn command() -> impl Strategy<Value = Words> {
    let key = || select(vec!["a", "b", "c"]);
    let member = || select(vec!["m", "n", "o", "p#00001", ""]);
    let score = || select(vec!["0", "1", "1.5", "-3", "1789000000.123456", "inf", "0.1", "x"]);
    // A range that can have nothing in it is answered before the type of the key is looked at; no script asks for one.
    let low = || select(vec!["-inf", "1", "(1", "0.1", "y"]);
    let high = || select(vec!["+inf", "1.5", "1789000000.123456", "(1789000000.123456"]);
    let rank = || select(vec!["0", "1", "2", "-1", "-2", "-9", "9", "z"]);
    // Long or over: time goes by on the real server.
    let expiry = || select(vec!["100000", "-1", "0", "x"]);
    let amount = || select(vec!["1", "-1", "100000", "x", "0"]);
    prop_oneof![
        key().prop_map(|k| words(&["GET", k])),
        (key(), member()).prop_map(|(k, m)| words(&["SET", k, m])),
        (key(), member()).prop_map(|(k, m)| words(&["SET", k, m, "KEEPTTL"])),
        (key(), key()).prop_map(|(k, l)| words(&["DEL", k, l])),
        (key(), key()).prop_map(|(k, l)| words(&["EXISTS", k, l])),
        (key(), expiry()).prop_map(|(k, n)| words(&["PEXPIRE", k, n])),
        key().prop_map(|k| words(&["PTTL", k])),
        (key(), member()).prop_map(|(k, m)| words(&["RPUSH", k, m])),
        key().prop_map(|k| words(&["LPOP", k])),
        (key(), member(), member()).prop_map(|(k, m, n)| words(&["HSET", k, m, n])),
        (key(), member()).prop_map(|(k, m)| words(&["HGET", k, m])),
        (key(), member()).prop_map(|(k, m)| words(&["HEXISTS", k, m])),
        (key(), member()).prop_map(|(k, m)| words(&["HDEL", k, m])),
        (key(), member(), amount()).prop_map(|(k, m, n)| words(&["HINCRBY", k, m, n])),
        key().prop_map(|k| words(&["HLEN", k])),
        key().prop_map(|k| words(&["HKEYS", k])),
        key().prop_map(|k| words(&["HGETALL", k])),
        (key(), score(), member()).prop_map(|(k, s, m)| words(&["ZADD", k, s, m])),
        (key(), score(), member()).prop_map(|(k, s, m)| words(&["ZADD", k, "XX", s, m])),
        (key(), score(), member()).prop_map(|(k, s, m)| words(&["ZADD", k, "XX", "CH", s, m])),
        (key(), score(), member(), score(), member())
            .prop_map(|(k, s, m, t, n)| words(&["ZADD", k, s, m, t, n])),
        (key(), member(), member()).prop_map(|(k, m, n)| words(&["ZREM", k, m, n])),
        (key(), member()).prop_map(|(k, m)| words(&["ZSCORE", k, m])),
        key().prop_map(|k| words(&["ZCARD", k])),
        (key(), low(), high()).prop_map(|(k, l, h)| words(&["ZCOUNT", k, l, h])),
        (key(), rank(), rank()).prop_map(|(k, f, l)| words(&["ZRANGE", k, f, l])),
        (key(), rank(), rank()).prop_map(|(k, f, l)| words(&["ZRANGE", k, f, l, "WITHSCORES"])),
        (key(), low(), high()).prop_map(|(k, l, h)| words(&["ZRANGEBYSCORE", k, l, h])),
        (key(), low(), high()).prop_map(|(k, l, h)| words(&["ZRANGEBYSCORE", k, l, h, "LIMIT", "0", "2"])),
        (key(), low(), high()).prop_map(|(k, l, h)| words(&[
            "ZRANGEBYSCORE",
            k,
            l,
            h,
            "WITHSCORES",
            "LIMIT",
            "1",
            "1"
        ])),
        (key(), low(), high()).prop_map(|(k, l, h)| words(&["ZREMRANGEBYSCORE", k, l, h])),
        (key(), rank(), rank()).prop_map(|(k, f, l)| words(&["ZREMRANGEBYRANK", k, f, l])),
        key().prop_map(|k| words(&["ZSCAN", k, "0", "COUNT", "100"])),
    ]
}

/// What a server answers, without what may differ.
fn answer(outcome: Result<Value, String>, words: &Words) -> Result<Value, String> {
    match outcome {
        // In no particular order.
        Ok(Value::Array(mut items)) if words[0] == "HKEYS" => {
            items.sort_by_key(|item| format!("{item:?}"));
            Ok(Value::Array(items))
        }
        Ok(Value::Array(items)) if words[0] == "HGETALL" => {
            let mut pairs: Vec<_> = items.chunks(2).map(<[_]>::to_vec).collect();
            pairs.sort_by_key(|pair| format!("{pair:?}"));
            Ok(Value::Array(pairs.concat()))
        }
        // Time goes by on the real server.
        Ok(Value::Int(left)) if words[0] == "PTTL" && left > 0 => Ok(Value::Int(1)),
        // Which of several faults is named, and in which words, does not matter to a script.
        Err(message) => Err(message.split(' ').next().unwrap_or_default().to_owned()),
        outcome => outcome,
    }
}

fn ask(server: &mut Connection, words: &Words) -> Result<Value, String> {
    let mut command = cmd(&words[0]);
    words[1..].iter().for_each(|word| {
        command.arg(word);
    });
    command.query(server).map_err(|error| format!("{} ", error.code().unwrap_or("ERR")))
}

fn connect(server: &RedisServer) -> Connection {
    let client = redis::Client::open(server.url()).expect("an address");
    client.get_connection().expect("it listens")
}

#[test]
fn commands_are_answered_as_by_a_real_server() {
    let server = RedisServer::start();
    let connection = RefCell::new(connect(&server));
    proptest!(ProptestConfig::with_cases(300), |(commands in proptest::collection::vec(command(), 1..60))| {
        let mut connection = connection.borrow_mut();
        let () = connection.flushall().expect("it can be emptied");
        let mut store = Store::at(1_789_000_000_000_000);
        for words in commands {
            let bytes: Vec<_> = words.iter().map(|word| word.clone().into_bytes()).collect();
            let ours = answer(store.run(&bytes), &words);
            let theirs = answer(ask(&mut connection, &words), &words);
            prop_assert_eq!(ours, theirs, "{:?}", words);
        }
    });
}

/// What the scripts use of Lua: conversions in both directions, errors, packed numbers.
#[test]
fn scripts_are_run_as_by_a_real_server() {
    let server = RedisServer::start();
    let mut connection = connect(&server);
    let store = Rc::new(RefCell::new(Store::at(1_789_000_000_000_000)));
    let mut scripts = Scripts::new(&store);
    let bodies = [
        "return 1",
        "return 3.99",
        "return -3.99",
        "return '3.99'",
        "return {1, 'two', {3}, false, 5}",
        "return {1, nil, 3}",
        "return true",
        "return false",
        "return {ok = 'FINE'}",
        "return {err = 'MINE is broken'}",
        "return redis.call('GET', KEYS[1])",
        "return redis.call('SET', KEYS[1], ARGV[1])",
        "redis.call('ZADD', KEYS[2], 1 / 3, 'a', 1789000000.123456, 'b') return redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')",
        "return redis.call('ZSCORE', KEYS[2], 'nothing')",
        "return tostring(redis.call('ZSCORE', KEYS[2], 'a') + 0)",
        "return redis.call('HGET', KEYS[2], 'x')",
        "return redis.pcall('HGET', KEYS[2], 'x').err ~= nil",
        "return {redis.pcall('HGET', KEYS[2], 'x')}",
        "return redis.call('NOSUCH')",
        "return 10 / 3 .. ''",
        "return 1789000000.123456 .. ''",
        "return 2 ^ 53 .. ''",
        "return struct.pack('<ddd', 1.5, -2, 1e300)",
        "return {struct.unpack('<dd', struct.pack('<dd', 1, 2.5))}",
        "return {tostring(#KEYS), tostring(#ARGV), ARGV[2]}",
        "return tostring(math.frexp(1025))",
        "local all = {} for _, text in ipairs({'1789000000.123456', '0.1', '-0', '-7', '.5', '5.', '.', '-', '', ' 12 ', '0x10', '1e3', \
         '1e400', '1..2', '--1', '12345678901234567890', '0.30000000000000004', 'inf', 'nan', '1x', '9007199254740993'}) do \
         all[#all + 1] = text .. string.format(' %.17g', tonumber(text) or -1) .. tostring(tonumber(text)) end return all",
        "return {tostring(tonumber(7.5)), tostring(tonumber(nil)), tostring(tonumber({})), tostring(tonumber('z', 36))}",
        "return tonumber()",
        "return error('no')",
        "return redis.call('HINCRBY', KEYS[3], 'n', 7)",
        "return string.format('%.6f', 1.5) .. string.rep('\\255', 2)",
    ];
    for body in bodies {
        let (keys, arguments) = (["a", "b", "c"], ["first", "\u{e9}"]);
        let mut command = cmd("EVAL");
        command.arg(body).arg(keys.len()).arg(&keys).arg(&arguments);
        let theirs: Result<Value, _> = command.query(&mut connection);
        let theirs = theirs.map_err(|error| error.code().unwrap_or("ERR").to_owned());
        let keys = keys.map(str::to_owned);
        let arguments = arguments.map(|word| word.as_bytes().to_vec());
        let ours = scripts.run(body, &keys, &arguments);
        let ours = ours.map_err(|message| message.split(' ').next().unwrap_or_default().to_owned());
        match (&ours, &theirs) {
            // The words differ with the version of the server.
            (Err(ours), Err(theirs))
                if ["error('no')", "NOSUCH", "tonumber()"].iter().any(|part| body.contains(part)) =>
            {
                println!("{body}: {ours}, {theirs}");
            }
            _ => assert_eq!(ours, theirs, "{body}"),
        }
    }
}
