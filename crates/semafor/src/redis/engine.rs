//! Encodes the client's calls as scripts, and decodes the replies of scripts and the messages of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, PushInfo, PushKind, Value};
use semafor_core::{Loss, NotHeld};

use super::config::Config;
use super::connection::ScriptReply;
use super::ids::{self, Ids};
use super::keys;
use super::script::lua::{self, Script};
use super::script::reply::{ReplyReader, read_ending, seconds, span, text, unexpected};
use super::script::schema::{self, ending, word};
use super::{diagnostics, inspect};
use crate::error::{AcquireError, BuildError, HomeError};
use crate::remote::call::{
    Call, Command, EndReason, Ended, Grant, HolderState, Key, LeaseEnd, Leaver, NameState, NotInLine, Push,
    PythonClients, Reply, WaiterState,
};
use crate::remote::client::safe_for;
use crate::remote::clock::{Instant, ServerClock};
use crate::remote::target::Target;
use crate::span::LONGEST;
use crate::stats::Who;

/// The scripts count in doubles, which are exact up to here. The time in microseconds reaches this in 2255.
const LARGEST_TOKEN: u64 = 1 << 53;

pub(super) struct Engine {
    config: Arc<Config>,
    pub(super) ids: Ids,
    /// The server's clock from its last reply, to convert the times in messages.
    clock: Mutex<Option<ServerClock>>,
    newest_token: Arc<AtomicU64>,
}

impl Engine {
    pub(super) fn new(config: Arc<Config>, newest_token: Arc<AtomicU64>) -> Self {
        Self::with_ids(config, newest_token, Ids::new())
    }

    pub(super) fn with_ids(config: Arc<Config>, newest_token: Arc<AtomicU64>, ids: Ids) -> Self {
        Self { config, ids, clock: Mutex::default(), newest_token }
    }

    pub(super) fn note_token(&self, token: u64) {
        if token < LARGEST_TOKEN {
            self.newest_token.fetch_max(token, Ordering::SeqCst);
        }
    }

    /// The largest fencing token that this process has seen of the server.
    pub(super) fn newest_token(&self) -> u64 {
        self.newest_token.load(Ordering::SeqCst)
    }

    fn id(&self, target: &Target, key: Key) -> Arc<str> {
        self.ids.text(&target.name, key)
    }

    /// The lists that get an element when such a waiter is granted its slots by Python's scripts.
    pub(super) fn notifications(&self, target: &Target, key: Key, weight: u32) -> Vec<String> {
        keys::notifications(&self.config.namespace, &self.id(target, key), weight)
    }

    // Calls

    /// The script of a command; `None` for commands that are not one script.
    pub(super) fn script(ask: &Command) -> Option<&'static Script> {
        Some(match ask {
            Command::Acquire { .. } => &lua::QUEUE,
            Command::CheckWaiter { .. } => &lua::ACQUIRE,
            Command::Release { .. } | Command::EndById { .. } => &lua::RELEASE,
            Command::End { .. } => &lua::LEAVE,
            Command::Renew { .. } => &lua::RENEW,
            Command::Heartbeat { .. } => &lua::PING,
            Command::Sweep | Command::Watch => &lua::WAKE_UP_NEXTS,
            Command::Subscribe { .. } | Command::Connect => return None,
            // Not needed: heartbeats and ids tell the server everything.
            Command::Detach { .. } | Command::Reclaim { .. } | Command::Reconnected { .. } => return None,
        })
    }

    /// Adds the arguments of a call's script.
    pub(super) fn encode(&self, call: &Call, command: &mut Cmd) {
        let target = &*call.target;
        match &call.command {
            Command::Acquire { request, place, .. } => {
                command
                    .arg(&*self.id(target, Key(call.number)))
                    .arg(request.weight)
                    .arg(seconds(request.ttl.unwrap_or_default()))
                    .arg(seconds(target.heartbeat))
                    .arg(seconds(grace(request.who.as_deref())))
                    .arg(inspect::process_details(request.who.as_deref()))
                    .arg(if request.wait.is_try() { word::TRY } else { word::WAIT })
                    .arg(target.slots())
                    .arg(u8::from(target.is_open()))
                    .arg(target.epoch())
                    .arg(max_waiting(target))
                    .arg(u8::from(call.is_repeat))
                    .arg(*place)
                    .arg(self.newest_token());
            }
            Command::CheckWaiter { key } => {
                command.arg(&*self.id(target, *key)).arg(self.newest_token());
            }
            Command::Release { key } => {
                command
                    .arg(&*self.id(target, *key))
                    .arg(reason_word(EndReason::Released))
                    .arg(0)
                    .arg(u8::from(call.is_repeat));
            }
            Command::EndById { id, reason } => {
                let is_others = !self.ids.is_own(id);
                command
                    .arg(&**id)
                    .arg(reason_word(*reason))
                    .arg(u8::from(is_others))
                    .arg(u8::from(call.is_repeat));
            }
            Command::End { leavers } => {
                for Leaver { key, reason, has_lost_attempt } in leavers {
                    command
                        .arg(&*self.id(target, *key))
                        .arg(reason_word(*reason))
                        .arg(u8::from(*has_lost_attempt));
                }
            }
            Command::Renew { id, ttl } => {
                // This process sends heartbeats for its own ids.
                let heartbeat = if self.ids.is_own(id) { Duration::ZERO } else { target.heartbeat };
                let vouched = schema::lease(*ttl, heartbeat);
                command.arg(&**id).arg(seconds(ttl.unwrap_or_default())).arg(seconds(vouched));
            }
            Command::Heartbeat { holders, waiters, .. } => {
                command.arg(holders.len()).arg(self.newest_token());
                for holder in holders {
                    command.arg(&*self.id(target, holder.key)).arg(holder.weight);
                    command.arg(seconds(holder.heartbeat)).arg(holder.slot).arg(holder.token);
                }
                for waiter in waiters {
                    command.arg(&*self.id(target, waiter.key)).arg(waiter.weight);
                    command.arg(seconds(waiter.heartbeat));
                }
            }
            Command::Sweep | Command::Watch | Command::Subscribe { .. } | Command::Connect => {}
            Command::Detach { .. } | Command::Reclaim { .. } | Command::Reconnected { .. } => {}
        }
    }

    // Replies

    pub(super) fn decode(&self, call: &Call, script_reply: &ScriptReply) -> Result<Reply, HomeError> {
        let target = &*call.target;
        let mut words = ReplyReader::of(script_reply.value.clone())?;
        match &call.command {
            Command::Acquire { request, .. } => {
                self.read_acquire(target, Key(call.number), request.weight, &mut words, script_reply)
            }
            Command::CheckWaiter { key } => match words.text()?.as_str() {
                word::GRANTED => {
                    note_open(target, &mut words)?;
                    self.read_grant(target, *key, &mut words, script_reply).map(Reply::Granted)
                }
                word::WAITING => {
                    self.read_clock(&mut words, script_reply)?;
                    Ok(Reply::Waiting)
                }
                _ => Ok(Reply::NotInLine(not_in_line(words.number()?))),
            },
            Command::Release { key } => {
                let id = self.id(target, *key);
                read_release(target, &id, EndReason::Released, call.is_repeat, &mut words)
            }
            Command::EndById { id, reason } => read_release(target, id, *reason, call.is_repeat, &mut words),
            Command::End { leavers } => {
                let (held, slots, waiting) = (words.number()?, words.number()?, words.number()?);
                let read = |leaver: &Leaver| {
                    let outcome = read_outcome(target, &self.id(target, leaver.key), &mut words)?
                        .map_err(|(_, why)| why);
                    Ok(Ended { outcome, held, slots, waiting })
                };
                leavers.iter().map(read).collect::<Result<_, HomeError>>().map(Reply::Ended)
            }
            Command::Renew { id, ttl } => {
                if words.text()? != word::RENEWED {
                    return Ok(Reply::NotHeld(why_not_held(target, id, words.number()?)));
                }
                let clock = self.read_clock(&mut words, script_reply)?;
                Ok(Reply::Renewed { clock, ends: ttl.map(|ttl| clock.now() + ttl.as_secs_f64()) })
            }
            Command::Heartbeat { holders, .. } => {
                let state = self.read_name_state(&mut words, script_reply)?;
                let mut states = words.rest();
                let of_holders = states.by_ref().take(holders.len()).map(read_holder).collect();
                Ok(Reply::Heartbeat {
                    state,
                    holders: of_holders,
                    waiters: states.map(read_waiter).collect(),
                })
            }
            Command::Sweep | Command::Watch => {
                self.read_name_state(&mut words, script_reply).map(Reply::Swept)
            }
            Command::Subscribe { .. } | Command::Connect => Ok(Reply::Done),
            Command::Detach { .. } | Command::Reclaim { .. } | Command::Reconnected { .. } => Ok(Reply::Done),
        }
    }

    fn read_acquire(
        &self,
        target: &Target,
        key: Key,
        weight: u32,
        words: &mut ReplyReader,
        script_reply: &ScriptReply,
    ) -> Result<Reply, HomeError> {
        Ok(match words.text()?.as_str() {
            word::GRANTED => {
                note_open(target, words)?;
                Reply::Granted(self.read_grant(target, key, words, script_reply)?)
            }
            word::QUEUED => {
                note_open(target, words)?;
                let place = words.some_seconds()?;
                Reply::Queued { place, state: self.read_name_state(words, script_reply)? }
            }
            word::BUSY => {
                note_open(target, words)?;
                Reply::Busy { held: words.number()?, waiting: words.number()?, slots: target.slots() }
            }
            word::FULL => Reply::Refused(AcquireError::LineFull { limit: words.number()? }),
            word::TOO_HEAVY => Reply::Refused(AcquireError::TooHeavy { weight, slots: words.number()? }),
            word::UNSEEN => {
                let error = diagnostics::weight_too_large_for_python(weight, words.number()?, &target.name);
                Reply::Refused(error.into())
            }
            word::CLOSED => Reply::Refused(AcquireError::Closed),
            word => Reply::Refused(AcquireError::Open(Box::new(why_not_open(target, word, words)?))),
        })
    }

    fn read_grant(
        &self,
        target: &Target,
        key: Key,
        words: &mut ReplyReader,
        script_reply: &ScriptReply,
    ) -> Result<Grant, HomeError> {
        let (slot, token, waited) = (words.number()?, words.number()?, span(words.some_seconds()?));
        let clock = self.read_clock(words, script_reply)?;
        self.note_token(token);
        let python_clients = python_clients(words.number()?);
        // A grant that was made before has an end that does not count from now.
        let ends = if words.is_empty() { LeaseEnd::AfterTtl } else { LeaseEnd::At(words.seconds()?) };
        let safe_until = script_reply.sent + safe_for(target.heartbeat, python_clients);
        let (id, slots, python_clients) = (self.id(target, key), Some(target.slots()), Some(python_clients));
        Ok(Grant { id, slot, token, waited, slots, clock, ends, safe_until, python_clients })
    }

    fn read_clock(
        &self,
        words: &mut ReplyReader,
        script_reply: &ScriptReply,
    ) -> Result<ServerClock, HomeError> {
        let clock = ServerClock::new(words.some_seconds()?, script_reply.sent, script_reply.received);
        *self.clock.lock() = Some(clock);
        Ok(clock)
    }

    /// The server's time, the next deadline and the Python clients, which several scripts return.
    fn read_name_state(
        &self,
        words: &mut ReplyReader,
        script_reply: &ScriptReply,
    ) -> Result<NameState, HomeError> {
        let clock = self.read_clock(words, script_reply)?;
        let deadline = words.seconds()?.and_then(|then| clock.latest(then));
        Ok(NameState { clock, deadline, python_clients: python_clients(words.number()?) })
    }

    // Messages of the server

    pub(super) fn read_push(&self, push: PushInfo, now: Instant) -> Vec<Push> {
        match push.kind {
            PushKind::Message | PushKind::SMessage => {
                let message = push.data.into_iter().nth(1).and_then(|message| text(message).ok());
                message.and_then(|message| self.read_message(&message, now)).into_iter().collect()
            }
            PushKind::Invalidate => match push.data.into_iter().next() {
                Some(Value::Array(keys)) => {
                    let keys = keys.into_iter().filter_map(|key| text(key).ok());
                    keys.filter_map(|key| self.read_change(&key)).collect()
                }
                _ => vec![Push::AllForgotten],
            },
            _ => Vec::new(),
        }
    }

    fn read_message(&self, message: &str, now: Instant) -> Option<Push> {
        let mut words = message.split(' ');
        let (kind, id) = (words.next()?, words.next()?);
        let key = self.ids.key_of(id)?;
        Some(match kind {
            word::GRANTED => match self.read_granted(id, words, now) {
                Some(grant) => Push::Granted { key, grant },
                None => Push::MayBeGranted { key },
            },
            word::CLOSED => Push::WaiterRemoved { key, why: NotInLine::Closed },
            word::TOO_HEAVY => Push::WaiterRemoved { key, why: NotInLine::TooHeavy },
            word::WATCH => Push::WatchNeeded { key },
            word::RENEWED => Push::Renewed { key, end: self.read_renewal(words, now) },
            word::LOST => {
                let code = words.next().and_then(|code| code.parse().ok());
                Push::Lost { key, why: code.map_or(NotHeld::Unknown, read_ending), is_kept: false }
            }
            _ => return None,
        })
    }

    /// `None` if the message is incomplete, or its token is too small because the server has forgotten its last tokens:
    /// then the client has to ask the server.
    fn read_granted<'a>(
        &self,
        id: &str,
        mut words: impl Iterator<Item = &'a str>,
        now: Instant,
    ) -> Option<Grant> {
        let (slot, token) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let [waited, then, until] = [(); 3].map(|()| words.next().and_then(|word| word.parse::<f64>().ok()));
        if token <= self.newest_token() {
            return None;
        }
        let clock = (*self.clock.lock())?.at_message(then?, now)?;
        let safe_until = clock.earliest(until?)?;
        self.note_token(token);
        let (waited, ends) = (span(waited?), LeaseEnd::AfterTtl);
        let (id, slots, python_clients) = (id.into(), None, None);
        Some(Grant { id, slot, token, waited, slots, clock, ends, safe_until, python_clients })
    }

    fn read_renewal<'a>(
        &self,
        mut words: impl Iterator<Item = &'a str>,
        now: Instant,
    ) -> Option<(ServerClock, Option<f64>)> {
        let [ttl, then] = [(); 2].map(|()| words.next().and_then(|word| word.parse::<f64>().ok()));
        let (ttl, then) = (ttl?, then?);
        let clock = (*self.clock.lock())?.at_message(then, now)?;
        Some((clock, (ttl > 0.0).then_some(then + ttl)))
    }

    fn read_change(&self, key: &str) -> Option<Push> {
        let namespace = &self.config.namespace;
        if let Some(id) = keys::notified_id(namespace, key) {
            return self.ids.key_of(id).map(|key| Push::MayBeGranted { key });
        }
        keys::name_of_main(namespace, key).map(|name| Push::HoldersChanged { name: name.into() })
    }
}

/// How long a holder keeps its slot after an eviction; zero if it loses the slot at once. Bounded, because the scripts
/// add it to the time of day.
fn grace(who: Option<&Who>) -> Duration {
    let grace = who.and_then(|who| who.grace);
    grace.map_or(Duration::ZERO, |grace| grace.clamp(Duration::from_millis(1), LONGEST))
}

pub(super) fn max_waiting(target: &Target) -> i64 {
    target.max_waiting.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX))
}

/// Reads the number of slots and the epoch.
pub(super) fn note_open(target: &Target, words: &mut ReplyReader) -> Result<(), HomeError> {
    target.note_open(words.number()?, words.number()?);
    Ok(())
}

pub(super) fn why_not_open(
    target: &Target,
    word: &str,
    words: &mut ReplyReader,
) -> Result<BuildError, HomeError> {
    let name = target.name.to_string();
    Ok(match word {
        word::MISMATCH => BuildError::SlotsMismatch { name, live: words.number()?, asked: target.slots() },
        word::CLOSING => BuildError::Closed { name, held: words.number()? },
        word::UNSET => BuildError::SlotsNotSet { name },
        other => return Err(unexpected(&Value::SimpleString(other.into()))),
    })
}

fn reason_word(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Released => word::RELEASED,
        EndReason::Evicted => word::EVICTED,
        EndReason::Cancelled => word::CANCELLED,
        EndReason::TimedOut => word::TIMED_OUT,
    }
}

/// From the number that `gate.python_clients` in `gate.lua` returns.
fn python_clients(code: u8) -> PythonClients {
    match code {
        0 => PythonClients::None,
        1 => PythonClients::Holding,
        _ => PythonClients::Seen,
    }
}

fn not_in_line(code: i64) -> NotInLine {
    match code {
        ending::CLOSED => NotInLine::Closed,
        ending::TOO_HEAVY => NotInLine::TooHeavy,
        ending::EVICTED => NotInLine::Evicted,
        _ => NotInLine::Forgotten,
    }
}

fn why_not_held(target: &Target, id: &str, code: i64) -> NotHeld {
    match read_ending(code) {
        // An id shows its name. Whether it was ever issued is not stored.
        NotHeld::Released if !ids::may_be_of(id, &target.name) => NotHeld::Unknown,
        why => why,
    }
}

/// The outcome of a release. If there was nothing to end: the code of how it ended before.
fn read_outcome(
    target: &Target,
    id: &str,
    words: &mut ReplyReader,
) -> Result<Result<(), (i64, NotHeld)>, HomeError> {
    let (word, code) = (words.text()?, words.number()?);
    Ok(match word.as_str() {
        word::ENDED | word::LEFT => Ok(()),
        _ => Err((code, why_not_held(target, id, code))),
    })
}

fn read_release(
    target: &Target,
    id: &str,
    reason: EndReason,
    again: bool,
    words: &mut ReplyReader,
) -> Result<Reply, HomeError> {
    let found = read_outcome(target, id, words)?;
    let is_own_doing = match found {
        Err((ending::RELEASED | ending::UNWANTED | ending::FORGOTTEN, _)) => true,
        Err((ending::EVICTED, _)) => reason == EndReason::Evicted,
        _ => false,
    };
    // An earlier attempt of this call did it.
    let outcome = if is_own_doing && again { Ok(()) } else { found.map_err(|(_, why)| why) };
    let (held, slots, waiting) = (words.number()?, words.number()?, words.number()?);
    Ok(Reply::Ended(vec![Ended { outcome, held, slots, waiting }]))
}

fn read_holder(state: Value) -> HolderState {
    if let Value::BulkString(_) | Value::SimpleString(_) = state {
        return match text(state).as_deref() {
            Ok("") => HolderState::Leased { ends: None },
            Ok(ends) => {
                ends.parse().map_or(HolderState::Present, |ends| HolderState::Leased { ends: Some(ends) })
            }
            Err(_) => HolderState::Present,
        };
    }
    match read_gone(state) {
        Some(ending::RELEASED) => HolderState::Gone(NotHeld::Lost(Loss::Vanished)),
        Some(code) => HolderState::Gone(read_ending(code)),
        None => HolderState::Present,
    }
}

fn read_waiter(state: Value) -> WaiterState {
    let is_list = matches!(state, Value::Array(_));
    match read_gone(state) {
        Some(code) => WaiterState::Gone(not_in_line(code)),
        None if is_list => WaiterState::Granted,
        None => WaiterState::Present,
    }
}

fn read_gone(state: Value) -> Option<i64> {
    let mut words = ReplyReader::of(state).ok()?;
    match words.text().as_deref() {
        Ok(word::GONE) => Some(words.number().unwrap_or(ending::RELEASED)),
        _ => None,
    }
}
