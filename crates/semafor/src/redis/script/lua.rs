//! The scripts: one per operation, each preceded by the shared clock and prelude.

use std::sync::LazyLock;

use super::schema;

macro_rules! scripts {
    ($($operation:ident = $file:literal),* $(,)?) => {
        $(pub(in crate::redis) static $operation: LazyLock<Script> = LazyLock::new(|| {
            let script = with_clock(include_str!("../../../lua/clock.lua"), include_str!(concat!("../../../lua/", $file)));
            Script { is_write: !READ_ONLY.contains(&$file), ..script }
        });)*

        const OPERATIONS: &[&str] = &[$(include_str!(concat!("../../../lua/", $file))),*];
    };
}

/// The scripts that change nothing.
const READ_ONLY: [&str; 2] = ["snapshot.lua", "list.lua"];

/// The source of all scripts.
pub(in crate::redis) fn sources() -> impl Iterator<Item = &'static str> {
    let shared = [
        include_str!("../../../lua/clock.lua"),
        include_str!("../../../lua/prelude.lua"),
        include_str!("../../../lua/gate.lua"),
    ];
    shared.into_iter().chain(OPERATIONS.iter().copied())
}

scripts! {
    OPEN = "open.lua",
    QUEUE = "queue.lua",
    ACQUIRE = "acquire.lua",
    RELEASE = "release.lua",
    LEAVE = "leave.lua",
    PING = "ping.lua",
    WAKE_UP_NEXTS = "wake_up_nexts.lua",
    RENEW = "renew.lua",
    RESIZE = "resize.lua",
    CLOSE = "close.lua",
    SNAPSHOT = "snapshot.lua",
    LIST = "list.lua",
}

/// A script, and the digest by which a server knows it once it has run it.
pub(in crate::redis) struct Script {
    pub(in crate::redis) code: String,
    pub(in crate::redis) digest: String,
    /// False if it changes nothing.
    pub(in crate::redis) is_write: bool,
}

/// Where an operation needs the whole gate. The code before it is the fast path, which does without.
const GATE: &str = "--- gate ---\n";

/// The clock is a separate part, so that a test can replace it.
pub(in crate::redis) fn with_clock(clock: &str, operation: &str) -> Script {
    let (prelude, gate) = (include_str!("../../../lua/prelude.lua"), include_str!("../../../lua/gate.lua"));
    let (fast_path, rest) = operation.split_once(GATE).unwrap_or(("", operation));
    let code = schema::expand(&[clock, prelude, fast_path, gate, rest].join("\n"));
    Script { digest: redis::Script::new(&code).get_hash().to_owned(), code, is_write: true }
}
