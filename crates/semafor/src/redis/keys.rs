//! The keys of a semaphore. The first five, and the notification lists, are shared with the Python library
//! `asyncio-advanced-semaphores`; `lua/prelude.lua` describes their content.

use super::script::schema::VISIBLE;

/// The keys of one name, in the order in which every script takes them.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) all: [String; 10],
}

const KINDS: [&str; 10] = [
    "semaphore_main",
    "semaphore_ttl",
    "semaphore_max",
    "semaphore_waiting",
    "semaphore_waiting_heartbeat",
    "semaphore_info",
    "semaphore_records",
    "semaphore_endings",
    "semaphore_times",
    "semaphore_own",
];

/// Their types, as `TYPE` returns them.
const TYPES: [&str; 10] =
    ["zset", "zset", "string", "zset", "zset", "string", "hash", "zset", "hash", "zset"];

/// If a namespace begins like a key of another namespace: that namespace, and the kind of key. Then both could have the
/// same key: `n:semaphore_main:x:semaphore_main:y` belongs to `y` in `n:semaphore_main:x`, and to `x:semaphore_main:y` in
/// `n`.
///
/// Such namespaces are refused, not such names: a namespace is written once, in a configuration, while names often
/// come from user input.
pub(super) fn ambiguity(namespace: &str) -> Option<(&str, &'static str)> {
    let splits = namespace.match_indices(':').map(|(at, _)| (&namespace[..at], &namespace[at + 1..]));
    splits.filter(|(start, _)| !start.is_empty()).find_map(|(start, rest)| {
        let kind = rest.split(':').next()?;
        KINDS.into_iter().find(|known| *known == kind).map(|kind| (start, kind))
    })
}

impl Keys {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self { all: KINDS.map(|kind| format!("{namespace}:{kind}:{name}")) }
    }
}

/// The keys of a name, each with its required type.
pub(super) fn with_types(keys: &[String]) -> impl Iterator<Item = (&str, &'static str)> {
    keys.iter().map(String::as_str).zip(TYPES)
}

/// The list that gets an element when a slot is granted to a waiter.
pub(super) fn notification(namespace: &str, id: &str) -> String {
    format!("{namespace}:acquisition_notification:{id}")
}

/// The lists to track for a waiter of that weight. Python's scripts grant a weight part by part, and push to a list for
/// each part: the last list shows that the grant is complete.
pub(super) fn notifications(namespace: &str, id: &str, weight: u32) -> Vec<String> {
    let mut lists = vec![notification(namespace, id)];
    if weight > 1 {
        lists.push(format!("{}#{:05}", lists[0], weight.min(VISIBLE) - 1));
    }
    lists
}

/// The id of a notification list.
pub(super) fn notified_id<'a>(namespace: &str, key: &'a str) -> Option<&'a str> {
    let member = key.strip_prefix(namespace)?.strip_prefix(":acquisition_notification:")?;
    Some(id_of(member))
}

/// A weight has several members in the sets: `id`, `id#00001` and so on.
pub(super) fn id_of(member: &str) -> &str {
    member.split_once('#').map_or(member, |(id, _)| id)
}

/// The name of a set of holders.
pub(super) fn name_of_main<'a>(namespace: &str, key: &'a str) -> Option<&'a str> {
    key.strip_prefix(namespace)?.strip_prefix(":semaphore_main:")
}

/// The channel for messages to a process about its ids.
pub(super) fn channel(namespace: &str, process: &str) -> String {
    format!("{namespace}:semafor:{process}")
}

/// Some key of the namespace, to find its node in a cluster.
pub(super) fn any_key(namespace: &str) -> String {
    format!("{namespace}:semafor")
}

/// Patterns that match the keys of all known names. [`name_of_pattern`] gets the name from such a key.
pub(super) fn patterns(namespace: &str) -> [String; 2] {
    [KINDS[0], KINDS[5]].map(|kind| format!("{}:{kind}:*", escaped(namespace)))
}

pub(super) fn name_of_pattern<'a>(namespace: &str, key: &'a str) -> Option<&'a str> {
    let rest = key.strip_prefix(namespace)?;
    rest.strip_prefix(":semaphore_main:").or_else(|| rest.strip_prefix(":semaphore_info:"))
}

/// Escapes a text, for a glob that matches only this text.
fn escaped(text: &str) -> String {
    let mut glob = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^') {
            glob.push('\\');
        }
        glob.push(character);
    }
    glob
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_keys_are_named_as_documented() {
        let keys = Keys::new("adv-sem", "images");
        assert_eq!(
            keys.all[..5],
            [
                "adv-sem:semaphore_main:images",
                "adv-sem:semaphore_ttl:images",
                "adv-sem:semaphore_max:images",
                "adv-sem:semaphore_waiting:images",
                "adv-sem:semaphore_waiting_heartbeat:images"
            ]
        );
        assert_eq!(notification("adv-sem", "1f"), "adv-sem:acquisition_notification:1f");
        assert_eq!(notified_id("adv-sem", "adv-sem:acquisition_notification:1f"), Some("1f"));
        assert_eq!(notified_id("adv", "adv-sem:acquisition_notification:1f"), None);
        let [first, last] = &notifications("adv-sem", "1f", 3)[..] else { panic!("two of three") };
        assert_eq!(
            (&**first, &**last),
            ("adv-sem:acquisition_notification:1f", "adv-sem:acquisition_notification:1f#00002")
        );
        assert_eq!(notified_id("adv-sem", last), Some("1f"));
        assert_eq!(name_of_main("adv-sem", "adv-sem:semaphore_main:a:b"), Some("a:b"));
    }

    #[test]
    fn namespace_is_escaped_in_patterns() {
        assert_eq!(patterns("a*[b]")[0], "a\\*\\[b\\]:semaphore_main:*");
    }
}
