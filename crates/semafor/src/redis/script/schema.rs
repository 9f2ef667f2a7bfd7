//! The one description of the scripts' data: the fields of INFO and of a record, the codes of endings, the words of replies
//! and messages.
//!
//! A line such as `--- unpack short INFO ---` in a Lua file is a placeholder: [`expand`] replaces it with code that is
//! generated from this description. So no list of fields is written twice, and a script is as fast as with the list
//! written out.

use std::time::Duration;

macro_rules! fields {
    ($(#[$doc:meta])* $kind:ident { $($(#[$about:meta])* $field:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub(in crate::redis) enum $kind { $($(#[$about])* $field),* }

        impl $kind {
            /// In the order in which they are stored.
            pub(in crate::redis) const ALL: &[Self] = &[$(Self::$field),*];

            pub(in crate::redis) const fn name(self) -> &'static str {
                match self { $(Self::$field => $name),* }
            }
        }
    };
}

fields! {
    /// The numbers of a name, packed as doubles in INFO. The slot numbers in use follow them, as bits.
    Info {
        /// Number of slots; 0 if the name is new.
        Slots = "slots",
        /// 1 if the name is closed.
        Closed = "closed",
        /// How often the name was opened again after it was closed.
        Epoch = "epoch",
        /// The newest fencing token.
        Fence = "fence",
        /// The number of slots held by our clients.
        Ours = "ours",
        /// Keys do not expire before this time.
        KeepUntil = "keep_until",
        /// No lease and no heartbeat of ours ends before this time.
        Due = "due",
        /// When a client last cancelled a request that had not arrived, or repeated one. For a while after that, requests
        /// may arrive late, so the fast paths are not taken.
        Unwanted = "unwanted",
        /// Slots held by weights of ours that have no member in MAIN.
        Hidden = "hidden",
        /// When a client of the Python library was last noticed.
        Shared = "shared",
        Granted = "granted",
        Released = "released",
        HoldTotal = "hold_total",
        HoldMax = "hold_max",
        WaitTotal = "wait_total",
        WaitMax = "wait_max",
        /// Bound of the line, plus 1; 0 if there is none.
        MaxWaiting = "max_waiting",
        /// 1 if some endings are not remembered any more.
        Forgot = "forgot",
        Queued = "queued",
        Expired = "expired",
        Evicted = "evicted",
        HandedOn = "handed_on",
        TimedOut = "timed_out",
        Cancelled = "cancelled",
        Refused = "refused",
        /// Members in MAIN beyond one per holder of ours.
        HeldExtra = "held_extra",
        /// Members in WAITING beyond one per waiter of ours.
        LineExtra = "line_extra",
    }
}

impl Info {
    /// The fast paths of `queue.lua` and `release.lua` read and write the fields up to this one.
    const LAST_SHORT: Self = Self::WaitMax;

    fn short() -> &'static [Self] {
        &Self::ALL[..=Self::LAST_SHORT as usize]
    }
}

fields! {
    /// The words of a record in RECORDS, with a space between them.
    Record {
        Weight = "weight",
        /// In seconds; 0 if there is none.
        Ttl = "ttl",
        /// How long a holder or waiter counts as alive after a heartbeat, in seconds.
        Heartbeat = "heartbeat",
        /// When it arrived, or was granted its slots.
        Since = "since",
        /// Its slot number, or `NOT_YET` or `UNKNOWN` of `gate.lua`.
        Slot = "slot",
        /// Its fencing token; 0 if it waits.
        Token = "token",
        /// How long it waited for its slots, in seconds.
        Waited = "waited",
        /// How long it keeps its slots after an eviction, in seconds; 0 if not at all; or `LEAVING` of `gate.lua`.
        Grace = "grace",
        /// Details about the process, as JSON. May contain spaces.
        Who = "who",
    }
}

macro_rules! constants {
    ($(#[$doc:meta])* $list:ident: $type:ty { $($(#[$about:meta])* $name:ident = $value:literal,)* }) => {
        $($(#[$about])* pub(in crate::redis) const $name: $type = $value;)*

        $(#[$doc])*
        pub(in crate::redis) const $list: &[(&str, $type)] = &[$((stringify!($name), $value)),*];
    };
}

/// How an id ended.
pub(in crate::redis) mod ending {
    constants! {
        ALL: i64 {
            /// The server does not remember how it ended.
            FORGOTTEN = -1,
            /// Its holder ended it, or it was never there.
            RELEASED = 0,
            EXPIRED = 1,
            EVICTED = 2,
            VANISHED = 3,
            CLOSED = 4,
            TOO_HEAVY = 5,
            /// Its request must not be carried out if it arrives late: it was cancelled, or its repetition has ended.
            UNWANTED = 6,
            /// Not an ending: its request was repeated, so an earlier attempt may still arrive.
            REPEATED = 7,
        }
    }
}

/// The words of replies, messages and arguments.
pub(in crate::redis) mod word {
    constants! {
        #[cfg(test)]
        ALL: &str {
            BUSY = "busy",
            CANCELLED = "cancelled",
            CLOSED = "closed",
            CLOSING = "closing",
            ENDED = "ended",
            EVICTED = "evicted",
            FULL = "full",
            GONE = "gone",
            GRANTED = "granted",
            LEFT = "left",
            LOST = "lost",
            MISMATCH = "mismatch",
            OPEN = "open",
            QUEUED = "queued",
            RELEASED = "released",
            RENEWED = "renewed",
            TIMED_OUT = "timed_out",
            TOO_HEAVY = "too_heavy",
            TRY = "try",
            UNSEEN = "unseen",
            UNSET = "unset",
            WAIT = "wait",
            WAITING = "waiting",
            WATCH = "watch",
        }
    }
}

/// How many members a weight has at most in the sets that are shared with the Python library.
pub(in crate::redis) const VISIBLE: u32 = 64;

/// How long a holder keeps its slot without a heartbeat: no longer than its lease.
pub(in crate::redis) fn lease(ttl: Option<Duration>, heartbeat: Duration) -> Duration {
    ttl.map_or(heartbeat, |ttl| ttl.min(heartbeat))
}

/// The same in Lua.
const LEASE: &str = "local lease = ttl > 0 and math.min(ttl, heartbeat) or heartbeat";

/// Replaces the placeholders in a script.
///
/// # Panics
///
/// If a placeholder is unknown. A test puts all scripts together.
pub(in crate::redis) fn expand(code: &str) -> String {
    let mut expanded = String::with_capacity(code.len() * 2);
    for line in code.lines() {
        let placeholder = line.trim_start().strip_prefix("--- ").and_then(|rest| rest.strip_suffix(" ---"));
        match placeholder {
            Some(placeholder) => expanded.push_str(&snippet(placeholder)),
            None => expanded.push_str(line),
        }
        expanded.push('\n');
    }
    expanded
}

fn snippet(placeholder: &str) -> String {
    let (short, long) = (Info::short(), Info::ALL);
    match placeholder {
        "INFO formats" => format!(
            "local SHORT, REST = '<{}', {} * 8 + 1\nlocal LONG, BITS = '<{}', {} * 8 + 1",
            "d".repeat(short.len()),
            short.len(),
            "d".repeat(long.len()),
            long.len()
        ),
        "unpack short INFO" => {
            format!("local {} = struct.unpack(SHORT, info)", list(short, |name| name.into()))
        }
        "pack short INFO" => {
            format!("local packed = struct.pack(SHORT, {})", list(short, |name| name.into()))
        }
        "unpack long INFO" => format!("local {} = struct.unpack(LONG, text)", list(long, |name| name.into())),
        "pack long INFO" => {
            format!("local packed = struct.pack(LONG, {})", list(long, |name| format!("g.{name}")))
        }
        "fields of INFO" => format!("{},", list(long, |name| format!("{name} = {name}"))),
        "endings" => {
            let (names, codes): (Vec<_>, Vec<_>) =
                ending::ALL.iter().map(|(name, code)| (*name, code.to_string())).unzip();
            format!("local {} = {}", names.join(", "), codes.join(", "))
        }
        "visible" => format!("local VISIBLE = {VISIBLE}"),
        "lease" => LEASE.into(),
        // Weight, ttl and heartbeat are also captured as one text, which is written back unchanged.
        "record pattern" => pattern("RECORD", |field| match field {
            Record::Weight => "((%S+)",
            Record::Heartbeat => "(%S+))",
            Record::Who => "(.*)$",
            _ => "(%S+)",
        }),
        "short record patterns" => {
            let holder = pattern("HOLDER", |field| match field {
                Record::Weight => "1",
                Record::Ttl | Record::Since | Record::Waited => "(%S+)",
                Record::Slot => "(%d+)",
                _ => "%S+",
            });
            let waiter = pattern("WAITER", |field| match field {
                Record::Weight => "1",
                Record::Ttl | Record::Heartbeat | Record::Since => "(%S+)",
                Record::Grace => "(%S+",
                Record::Who => ".*)$",
                _ => "%S+",
            });
            format!("{holder}\n{waiter}")
        }
        _ => match placeholder.strip_prefix("local record: ") {
            Some(values) => format!("local record = {}", joined(values)),
            None => panic!("a script has the placeholder {placeholder:?}, which schema.rs does not know"),
        },
    }
}

fn list(fields: &[Info], write: impl Fn(&str) -> String) -> String {
    fields.iter().map(|field| write(field.name())).collect::<Vec<_>>().join(", ")
}

/// A pattern that matches a record, up to the last word that is captured or fixed.
fn pattern(name: &str, of: impl Fn(Record) -> &'static str) -> String {
    let mut words: Vec<_> = Record::ALL.iter().map(|field| of(*field)).collect();
    while words.pop_if(|word| *word == "%S+").is_some() {}
    format!("local {name} = '^{}'", words.join(" "))
}

/// The text of a record, from `weight='1' ttl=ARGV[4] …`: all fields in order, with a value in Lua for each.
/// `a..b=value` is one value for the fields from `a` to `b`.
fn joined(values: &str) -> String {
    let mut missing = Record::ALL.iter().map(|field| field.name());
    let mut parts: Vec<String> = Vec::new();
    for word in values.split(' ') {
        let (fields, value) = word.split_once('=').unwrap_or((word, word));
        let (first, last) = fields.split_once("..").unwrap_or((fields, fields));
        assert_eq!(missing.next(), Some(first), "the fields of a record are not in order: {values}");
        assert!(
            first == last || missing.any(|name| name == last),
            "{last} is not a field of a record: {values}"
        );
        if !parts.is_empty() {
            parts.push("' '".into());
        }
        parts.push(value.into());
    }
    assert_eq!(missing.next(), None, "the fields of a record are not complete: {values}");
    // Joins adjacent literals.
    parts.join(" .. ").replace("' .. '", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::script::lua;

    #[test]
    fn no_script_has_an_unknown_placeholder() {
        for source in lua::sources() {
            let code = lua::with_clock("", source).code;
            assert!(!code.contains("--- "), "{code}");
        }
    }

    #[test]
    fn generated_code_is_as_expected() {
        let pairs = [
            ("lease", LEASE),
            ("visible", "local VISIBLE = 64"),
            (
                "endings",
                "local FORGOTTEN, RELEASED, EXPIRED, EVICTED, VANISHED, CLOSED, TOO_HEAVY, UNWANTED, REPEATED = \
                 -1, 0, 1, 2, 3, 4, 5, 6, 7",
            ),
            ("record pattern", "local RECORD = '^((%S+) (%S+) (%S+)) (%S+) (%S+) (%S+) (%S+) (%S+) (.*)$'"),
            (
                "short record patterns",
                "local HOLDER = '^1 (%S+) %S+ (%S+) (%d+) %S+ (%S+)'\n\
                 local WAITER = '^1 (%S+) (%S+) (%S+) %S+ %S+ %S+ (%S+ .*)$'",
            ),
            (
                "local record: weight='1' ttl='0' heartbeat=h since=NOW_TEXT slot token waited='0' grace..who=rest",
                "local record = '1 0 ' .. h .. ' ' .. NOW_TEXT .. ' ' .. slot .. ' ' .. token .. ' 0 ' .. rest",
            ),
        ];
        for (placeholder, code) in pairs {
            assert_eq!(snippet(placeholder), code);
        }
    }

    #[test]
    #[should_panic(expected = "not complete")]
    fn record_without_all_fields_is_refused() {
        joined("weight='1' ttl='0'");
    }

    /// The Lua files contain the words as literals, because constants would cost time in every call.
    #[test]
    fn scripts_and_client_use_the_same_words() {
        // `how` may also be the name of a total.
        let totals = Info::ALL.iter().map(|field| field.name());
        let known: Vec<_> = word::ALL.iter().map(|(_, word)| *word).chain(totals).collect();
        let sources: Vec<_> = lua::sources().collect();
        for source in &sources {
            for start in [
                "return { '",
                " = { '",
                "refused('",
                "outcome = '",
                "how == '",
                "gate.publish(id, '",
                "(head, '",
            ] {
                for (at, _) in source.match_indices(start) {
                    let text = source[at + start.len()..].split(['\'', ' ']).next().unwrap_or_default();
                    assert!(known.contains(&text), "a script says {text:?}: add it to schema::word");
                }
            }
        }
        for (_, word) in word::ALL {
            let (whole, first) = (format!("'{word}'"), format!("'{word} "));
            assert!(
                sources.iter().any(|source| source.contains(&whole) || source.contains(&first)),
                "no script says {word:?}"
            );
        }
    }
}
