//! What the scripts need from a server: the commands that its user must be allowed to run, and that it deletes no keys.
//!
//! A script that may not run a command stops half-way, when it has changed something already. So the permissions are
//! checked before the first script runs.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use redis::{Cmd, Value, cmd};

use super::keys;
use super::script::lua;
use super::script::reply::{ReplyReader, text};
use crate::error::HomeError;

/// The commands with their arguments, `*` for the key. Each has all arguments that it needs, because a server may crash
/// if it is asked about a command with fewer. On a key that does not exist they change nothing, except the
/// [`CREATING`] ones.
const COMMANDS: &[&str] = &[
    "DEL *",
    "EXISTS *",
    "EXPIRE * 1",
    "GET *",
    "HDEL * f",
    "HEXISTS * f",
    "HGET * f",
    "HGETALL *",
    "HINCRBY * f 1",
    "HKEYS *",
    "HLEN *",
    "HMGET * f",
    "HSCAN * 0",
    "HSET * f v",
    "HVALS *",
    "INCR *",
    "LLEN *",
    "LPOP *",
    "LRANGE * 0 0",
    "PERSIST *",
    "PEXPIRE * 1000",
    "PTTL *",
    "RPUSH * v",
    "SET * v XX",
    "STRLEN *",
    "TIME",
    "TYPE *",
    "UNLINK *",
    "ZADD * XX 1 m",
    "ZCARD *",
    "ZCOUNT * 0 0",
    "ZINCRBY * 0 m",
    "ZPOPMIN *",
    "ZRANGE * 0 0",
    "ZRANGEBYSCORE * 0 0",
    "ZRANK * m",
    "ZREM * m",
    "ZREMRANGEBYRANK * 0 0",
    "ZREMRANGEBYSCORE * 0 0",
    "ZREVRANGE * 0 0",
    "ZSCAN * 0",
    "ZSCORE * m",
];

const CREATING: [&str; 5] = ["HINCRBY", "HSET", "INCR", "RPUSH", "ZINCRBY"];

/// The commands that scripts use with `call`. Those with `pcall` are optional.
static NEEDED: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let used: BTreeSet<_> = lua::sources().flat_map(commands).collect();
    COMMANDS.iter().copied().filter(|call| used.contains(name_of(call))).collect()
});

fn name_of(call: &str) -> &str {
    call.split(' ').next().unwrap_or_default()
}

/// The commands that a script calls with `call`.
fn commands(source: &str) -> impl Iterator<Item = &str> {
    let calls = source.match_indices("call('").filter(|(at, _)| !source[..*at].ends_with('p'));
    calls.filter_map(|(at, call)| source[at + call.len()..].split('\'').next())
}

/// Finds which commands the server refuses, and which it refuses only for the first key. Servers before 7.0 have no
/// command for that: there the script runs the commands, on keys that no other client uses.
const PERMISSION_SCRIPT: &str = r"
local refused, misplaced = {}, {}
local creates, may_delete = {}, true
for name in string.gmatch(ARGV[3], '%S+') do
    creates[name] = true
end
local function may(call, key)
    local words = {}
    for word in string.gmatch(call, '%S+') do
        words[#words + 1] = word == '*' and key or word
    end
    if redis.acl_check_cmd then
        return redis.acl_check_cmd(unpack(words))
    elseif creates[words[1]] and not may_delete then
        return true
    end
    local answer = redis.pcall(unpack(words))
    if creates[words[1]] then
        redis.pcall('DEL', key)
    end
    local complaint = type(answer) == 'table' and answer.err or ''
    return not (string.find(complaint, 'NOPERM', 1, true) or string.find(complaint, 'ACL failure', 1, true)
        or string.find(complaint, 'executing the script can', 1, true))
end
for i = 4, #ARGV do
    local name = string.match(ARGV[i], '^%S+')
    if not may(ARGV[i], ARGV[1]) then
        local list = may(ARGV[i], ARGV[2]) and misplaced or refused
        list[#list + 1] = name
        may_delete = may_delete and name ~= 'DEL'
    end
end
return { refused, misplaced }";

/// The command that finds missing permissions, for [`read_missing_permissions`].
pub(super) fn ask_for_missing_permissions(namespace: &str, process: &str) -> Cmd {
    question(PERMISSION_SCRIPT, namespace, process)
}

fn question(script: &str, namespace: &str, process: &str) -> Cmd {
    // No client uses this id or this name: the id of the process is random.
    let list = keys::notification(namespace, &format!("00000000{process}{:012}", 0));
    let any = format!("{namespace}:semaphore_main:{process}");
    let mut question = cmd("EVAL");
    question.arg(script).arg(0).arg(list).arg(any).arg(CREATING.join(" ")).arg(&*NEEDED);
    question
}

/// The missing permissions, in words; `None` if nothing is missing.
pub(super) fn read_missing_permissions(answer: Value, namespace: &str) -> Result<Option<String>, HomeError> {
    let mut words = ReplyReader::of(answer)?;
    let mut names = || -> Result<Vec<String>, HomeError> { words.list()?.rest().map(text).collect() };
    let (refused, misplaced) = (names()?, names()?);
    let is_refused = |call: &&str| refused.iter().any(|name| name == name_of(call));
    if NEEDED.iter().filter(|call| call.contains('*') && !CREATING.contains(&name_of(call))).all(is_refused) {
        return Ok(Some(format!("use the keys {namespace}:*")));
    }
    let mut missing = Vec::new();
    if !refused.is_empty() {
        missing.push(format!("run {}", refused.join(", ")));
    }
    // The scripts run only these on the lists.
    let on_lists: Vec<_> =
        ["DEL", "PEXPIRE", "RPUSH"].into_iter().filter(|name| misplaced.iter().any(|m| m == name)).collect();
    if !on_lists.is_empty() {
        missing
            .push(format!("run {} on the keys {namespace}:acquisition_notification:*", on_lists.join(", ")));
    }
    Ok((!missing.is_empty()).then(|| missing.join(", and not ")))
}

/// The server's `maxmemory-policy` from `INFO memory`, if it deletes keys in use.
pub(super) fn eviction_policy(info: &str) -> Option<&str> {
    let policy = info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"))?.trim();
    (policy.starts_with("allkeys-") || policy.starts_with("volatile-")).then_some(policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_of_the_scripts_is_listed() {
        for source in lua::sources() {
            for command in commands(source) {
                assert!(
                    COMMANDS.iter().any(|call| name_of(call) == command),
                    "a script calls {command:?}: add it to COMMANDS, with as many words as it needs"
                );
            }
            // A command in a variable would not be found.
            for (at, _) in source.match_indices("call(") {
                let rest = &source[at + "call(".len()..];
                assert!(rest.starts_with('\''), "{}", rest.lines().next().unwrap_or_default());
            }
        }
        assert!(NEEDED.contains(&"RPUSH * v") && NEEDED.len() > 15);
    }

    #[test]
    fn policies_that_delete_keys_in_use_are_recognised() {
        let info =
            |policy: &str| format!("# Memory\r\nused_memory:1\r\nmaxmemory_policy:{policy}\r\nx:1\r\n");
        assert_eq!(eviction_policy(&info("noeviction")), None);
        assert_eq!(eviction_policy(""), None);
        for policy in ["allkeys-lru", "allkeys-random", "volatile-lru", "volatile-ttl", "volatile-lfu"] {
            assert_eq!(eviction_policy(&info(policy)), Some(policy));
        }
    }

    /// The way for servers before 7.0.
    #[cfg(feature = "_test-redis")]
    #[test]
    fn refused_commands_are_found_without_acl_check_cmd() {
        let server = semafor_testkit::redis::RedisServer::start();
        let old = PERMISSION_SCRIPT.replace("if redis.acl_check_cmd then", "if false then");
        assert_ne!(old, PERMISSION_SCRIPT);
        let lists = "on the keys ns:acquisition_notification:*";
        // On old servers, a user that may not delete does not try commands that create keys.
        for (rules, missing, missing_on_old) in [
            (&["~*", "&*", "+@all"][..], None, None),
            (&["~ns:*", "&ns:*", "+@all", "-@admin", "-@dangerous"], None, None),
            (&["~*", "+@all", "-rpush"], Some("run RPUSH".to_owned()), Some("run RPUSH".to_owned())),
            (&["~*", "+@all", "-del", "-hset"], Some("run DEL, HSET".into()), Some("run DEL".into())),
            (
                &["~*", "+@all", "-zadd", "-zscore"],
                Some("run ZADD, ZSCORE".into()),
                Some("run ZADD, ZSCORE".into()),
            ),
            (&["~other:*", "+@all"], Some("use the keys ns:*".into()), Some("use the keys ns:*".into())),
            (
                &["~ns:semaphore_*", "+@all"],
                Some(format!("run DEL, PEXPIRE, RPUSH {lists}")),
                Some(format!("run DEL, PEXPIRE {lists}")),
            ),
        ] {
            server.command(&[&["ACL", "SETUSER", "u", "reset", "on", "nopass"], rules].concat());
            let mut connection = server.connection();
            redis::cmd("AUTH").arg("u").arg("any").exec(&mut connection).expect("a user");
            for (script, missing) in [(PERMISSION_SCRIPT, missing), (&*old, missing_on_old)] {
                let answer =
                    question(script, "ns", "0123456789ab").query(&mut connection).expect("an answer");
                let found = read_missing_permissions(answer, "ns").expect("an answer");
                assert_eq!(found, missing, "{rules:?}");
            }
            assert_eq!(server.command(&["DBSIZE"]), Value::Int(0), "{rules:?}");
        }
    }

    #[cfg(feature = "_test-redis")]
    #[test]
    fn each_missing_command_is_named() {
        let server = semafor_testkit::redis::RedisServer::start();
        let mut connection = server.connection();
        for call in &*NEEDED {
            let name = name_of(call);
            let rule = format!("-{name}");
            server.command(&["ACL", "SETUSER", "u", "reset", "on", "nopass", "~*", "&*", "+@all", &rule]);
            redis::cmd("AUTH").arg("u").arg("any").exec(&mut connection).expect("a user");
            let answer =
                ask_for_missing_permissions("ns", "0123456789ab").query(&mut connection).expect("an answer");
            assert_eq!(
                read_missing_permissions(answer, "ns").expect("an answer"),
                Some(format!("run {name}"))
            );
        }
    }
}
