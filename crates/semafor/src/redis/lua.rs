//! The scripts: one per operation, each behind the clock and the prelude that they share.

use std::sync::LazyLock;

macro_rules! scripts {
    ($($operation:ident = $file:literal),* $(,)?) => {
        $(pub(super) static $operation: LazyLock<Script> = LazyLock::new(|| {
            with_clock(include_str!("../../lua/clock.lua"), include_str!(concat!("../../lua/", $file)))
        });)*
    };
}

scripts! {
    OPEN = "open.lua",
    QUEUE = "queue.lua",
    ACQUIRE = "acquire.lua",
    RELEASE = "release.lua",
    PING = "ping.lua",
    WAKE_UP_NEXTS = "wake_up_nexts.lua",
    RENEW = "renew.lua",
    RESIZE = "resize.lua",
    CLOSE = "close.lua",
    CARD = "card.lua",
    LIST = "list.lua",
}

/// A script, and the digest by which a server knows it once it has run it.
pub(super) struct Script {
    pub(super) code: String,
    pub(super) digest: String,
}

/// Where an operation wants the whole gate. What stands before it does without.
const GATE: &str = "--- gate ---\n";

/// The clock is a part of its own, so that a test can hold it.
pub(super) fn with_clock(clock: &str, operation: &str) -> Script {
    let (prelude, gate) = (include_str!("../../lua/prelude.lua"), include_str!("../../lua/gate.lua"));
    let (short_way, rest) = operation.split_once(GATE).unwrap_or(("", operation));
    let code = [clock, prelude, short_way, gate, rest].join("\n");
    Script { digest: redis::Script::new(&code).get_hash().to_owned(), code }
}
