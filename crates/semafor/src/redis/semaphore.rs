//! A named semaphore on Redis: what is asked of it, as scripts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redis::Value;
use semafor_core::{Loss, NotHeld};
use tokio::sync::oneshot;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;

use super::answer::{
    CLOSED, EVICTED, NOBODY_KNOWS, ServerClock, TOO_HEAVY, Words, ending, seconds, span, unexpected,
};
use super::fleet::{Anchor, Fleet, Mailbox, Name, News, gone};
use super::hold::{Granted, Hold};
use super::ids;
use super::keys::{self, Keys};
use super::link::Answered;
use super::lua::Script;
use super::{inspect, lua};
use crate::error::{AcquireError, BuildError, HomeError, ReleaseError, RenewError};
use crate::remote::{Answer, Errand, Patience, RemoteLease, RemoteSemaphore, Wish};
use crate::task::TaskKey;
use crate::{HolderInfo, PermitId, Stats, WaiterInfo};

/// How often a grant may be over before it is known here: once if the process slept, always if it is for a shorter time than
/// an answer takes.
const STALE_GRANTS: u32 = 3;

/// How long to keep trying to give back what nobody wants any more. After that, missing heartbeats do it.
const GIVING_BACK: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(crate) struct RedisSemaphore {
    shared: Arc<Inner>,
    /// Users' handles have one. What is done on their behalf has none: the last user has to wait for that.
    anchor: Option<Arc<Anchor>>,
}

struct Inner {
    fleet: Arc<Fleet>,
    name: Arc<Name>,
    heartbeat: Duration,
    max_waiting: Option<usize>,
    /// How many slots were asked for; later, how many there were when the server last said. 0: whatever there are.
    slots: AtomicU32,
    /// Once the server has agreed to the number of slots, a different one means that somebody resized it.
    is_open: AtomicBool,
    /// Which life of the name this handle belongs to: closing ends one.
    epoch: AtomicI64,
}

/// How something ends that its holder or waiter did not want any more.
#[derive(Clone, Copy)]
enum How {
    Released,
    Evicted,
    Cancelled,
    TimedOut,
}

impl How {
    fn word(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Evicted => "evicted",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
        }
    }
}

/// What a release found, and how things stand after it.
struct Ended {
    outcome: Outcome,
    held: u32,
    slots: u32,
    waiting: usize,
}

enum Outcome {
    Ended,
    Left,
    Gone(i64),
}

impl RedisSemaphore {
    pub(super) fn new(
        anchor: Arc<Anchor>,
        name: &str,
        slots: Option<u32>,
        max_waiting: Option<usize>,
        heartbeat: Duration,
    ) -> Self {
        let keys = Keys::new(&anchor.fleet().config.namespace, name);
        let inner = Inner {
            fleet: Arc::clone(anchor.fleet()),
            name: Arc::new(Name { name: name.into(), keys }),
            heartbeat,
            max_waiting,
            slots: AtomicU32::new(slots.unwrap_or(0)),
            is_open: AtomicBool::new(false),
            epoch: AtomicI64::new(-1),
        };
        Self { shared: Arc::new(inner), anchor: Some(anchor) }
    }

    fn fleet(&self) -> &Arc<Fleet> {
        &self.shared.fleet
    }

    /// For what goes on when users have left.
    fn unanchored(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), anchor: None }
    }

    fn max_waiting(&self) -> i64 {
        self.shared.max_waiting.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX))
    }

    /// Runs a script on the fleet's thread.
    async fn run(
        &self,
        script: &'static Script,
        arguments: impl Fn(&mut redis::Cmd) + Send + Sync + 'static,
    ) -> Result<Answered, HomeError> {
        let name = Arc::clone(&self.shared.name);
        let run = |fleet: Arc<Fleet>| async move {
            fleet.link.run(script, &name.keys, None, |_, command| arguments(command)).await
        };
        self.fleet().on_own_thread(run).await
    }

    /// Opens the name: agrees with the server on the number of slots.
    async fn agree(&self) -> Result<(), BuildError> {
        let (slots, max_waiting) = (self.shared.slots.load(Ordering::Relaxed), self.max_waiting());
        let answered = self.run(&lua::OPEN, move |command| {
            command.arg(slots).arg(max_waiting);
        });
        let mut words = Words::of(answered.await?.value)?;
        let word = words.text()?;
        if word == "open" {
            self.note_open(&mut words)?;
            return Ok(());
        }
        Err(self.why_not_open(&word, &mut words)?)
    }

    /// Reads the number of slots and the epoch.
    fn note_open(&self, words: &mut Words) -> Result<(), HomeError> {
        self.shared.slots.store(words.number()?, Ordering::Relaxed);
        self.shared.epoch.store(words.number()?, Ordering::Relaxed);
        self.shared.is_open.store(true, Ordering::Release);
        Ok(())
    }

    fn why_not_open(&self, word: &str, words: &mut Words) -> Result<BuildError, HomeError> {
        let name = self.shared.name.name.to_string();
        Ok(match word {
            "mismatch" => BuildError::SlotsMismatch {
                name,
                live: words.number()?,
                asked: self.shared.slots.load(Ordering::Relaxed),
            },
            "closing" => BuildError::Closed { name, held: words.number()? },
            "unset" => BuildError::SlotsNotSet { name },
            other => return Err(unexpected(&Value::SimpleString(other.into()))),
        })
    }

    // Acquiring

    /// Stands in line on behalf of somebody who may go away at any time.
    async fn serve(self, wish: Wish, mut client: oneshot::Sender<Result<Lease, AcquireError>>) {
        let started = Instant::now();
        let deadline = match wish.patience {
            Patience::For(patience) if !patience.is_zero() => started.checked_add(patience),
            _ => None,
        };
        let id = self.fleet().ids.issue(&self.shared.name.name);
        let mut ward = Ward::new(&self, &id, How::Cancelled, Some(wish.errand.clone()), false);
        let in_line = self.stand_in_line(&id, &wish, started, &ward.is_needed);
        let outcome = tokio::select! {
            biased;
            () = client.closed() => None,
            outcome = timeout_at(deadline.unwrap_or_else(far_future).into(), in_line) => Some(outcome),
        };
        let outcome = match outcome {
            None => return,
            Some(Ok(Ok(lease))) => Ok(lease),
            Some(Ok(Err(error))) => Err(error),
            Some(Err(_)) => {
                self.fleet().discharge(&id);
                Err(self.time_out(id, started).await)
            }
        };
        // Else, whatever the server did of what it was asked to, it is not wanted any more.
        if !matches!(outcome, Err(AcquireError::Home(_) | AcquireError::Lost(_))) {
            ward.dismiss();
        }
        // If nobody is there to take it any more, this drops the lease, and that gives it back.
        let _ = client.send(outcome);
    }

    async fn time_out(&self, id: Arc<str>, started: Instant) -> AcquireError {
        // One quick try to leave properly, and to say how things stood.
        let name = &self.shared.name;
        let leaving = self.fleet().link.run_once(&lua::RELEASE, &name.keys, |command| {
            command.arg(&*id).arg(How::TimedOut.word()).arg(0);
        });
        let ended = tokio::time::timeout(Duration::from_secs(1), leaving).await;
        match ended {
            Ok(Ok(answered)) => match read_ended(answered.value) {
                Ok(Ended { held, slots, waiting, .. }) => {
                    AcquireError::TimedOut { waited: started.elapsed(), held, capacity: slots, waiting }
                }
                Err(error) => error.into(),
            },
            Ok(Err(error)) => error.into(),
            Err(_) => super::trouble::silent(&self.fleet().config).into(),
        }
    }

    async fn stand_in_line(
        &self,
        id: &Arc<str>,
        wish: &Wish,
        started: Instant,
        is_asked: &AtomicBool,
    ) -> Result<Lease, AcquireError> {
        let fleet = self.fleet();
        let patience = match wish.patience {
            Patience::For(patience) => Some(patience),
            _ => None,
        };
        let mode = match wish.patience {
            Patience::For(patience) if !patience.is_zero() => "wait",
            Patience::Unlimited => "wait",
            _ => "try",
        };
        let who = inspect::who(&wish.who);
        let mut news = None;
        let (mut arrival, mut was_asked) = (0.0, false);
        let mut stale = 0;
        loop {
            let is_open = self.shared.is_open.load(Ordering::Acquire);
            let answered = fleet.link.run(&lua::QUEUE, &self.shared.name.keys, patience, |again, command| {
                is_asked.store(true, Ordering::Relaxed);
                command
                    .arg(&**id)
                    .arg(wish.weight)
                    .arg(seconds(wish.ttl.unwrap_or_default()))
                    .arg(seconds(self.shared.heartbeat))
                    .arg(&*who)
                    .arg(mode)
                    .arg(self.shared.slots.load(Ordering::Relaxed))
                    .arg(u8::from(is_open))
                    .arg(self.shared.epoch.load(Ordering::Relaxed))
                    .arg(self.max_waiting())
                    .arg(u8::from(again || was_asked))
                    .arg(arrival);
            });
            let answered = answered.await?;
            was_asked = true;
            let mut words = Words::of(answered.value.clone())?;
            match words.text()?.as_str() {
                "granted" => {
                    self.note_open(&mut words)?;
                    let granted = self.read_grant(&mut words, &answered, wish.ttl)?;
                    if granted.is_fresh() {
                        return Ok(self.lease(id, granted, wish));
                    }
                    stale += 1;
                    if stale == STALE_GRANTS {
                        return Err(TOO_LATE);
                    }
                }
                "queued" => {
                    self.note_open(&mut words)?;
                    arrival = words.some_seconds()?;
                    let clock = ServerClock::new(words.some_seconds()?, &answered);
                    fleet.note_clock(clock);
                    let deadline = words.seconds()?.and_then(|then| clock.latest(then));
                    let is_watch_needed = words.number::<u8>()? == 1;
                    // A grant that came before it was on the list is seen when it begins to wait.
                    let news = news.get_or_insert_with(|| {
                        fleet.enlist(id, &self.shared.name, wish.weight, self.shared.heartbeat)
                    });
                    fleet.note_deadline(&self.shared.name, deadline);
                    if let Some(granted) = self.wait(id, wish, news, is_watch_needed).await? {
                        return Ok(self.lease(id, granted, wish));
                    }
                }
                "busy" => {
                    self.note_open(&mut words)?;
                    let (held, waiting) = (words.number()?, words.number()?);
                    let capacity = self.shared.slots.load(Ordering::Relaxed);
                    return Err(match wish.patience {
                        Patience::None => AcquireError::Busy,
                        _ => AcquireError::TimedOut { waited: started.elapsed(), held, capacity, waiting },
                    });
                }
                "full" => return Err(AcquireError::LineFull { limit: words.number()? }),
                "too_heavy" => {
                    return Err(AcquireError::TooHeavy { weight: wish.weight, capacity: words.number()? });
                }
                "closed" => return Err(AcquireError::Closed),
                word => {
                    let error = self.why_not_open(word, &mut words)?;
                    return Err(AcquireError::Open(Box::new(error)));
                }
            }
        }
    }

    /// Waits for news. `None` if the server has forgotten about it: it goes back to where it stood.
    async fn wait(
        &self,
        id: &Arc<str>,
        wish: &Wish,
        news: &Mailbox,
        is_watch_needed: bool,
    ) -> Result<Option<Granted>, AcquireError> {
        let fleet = self.fleet();
        // From here on, a grant by anybody is pushed. One that came before is seen now.
        let notifications = keys::notifications(&fleet.config.namespace, id, wish.weight);
        let mut is_notified = match fleet.link.track(&notifications).await {
            Ok(Some(exists)) => exists.contains(&true),
            // Nobody will tell, so it looks once; after that, heartbeats do.
            Ok(None) => true,
            // A new connection begins with this, too.
            Err(_) => false,
        };
        if is_watch_needed {
            fleet.watch_holders(&self.shared.name).await;
        }
        let mut stale = 0;
        loop {
            let told = if is_notified { news.look().unwrap_or(News::LookAgain) } else { news.next().await };
            is_notified = false;
            match told {
                News::Granted(granted) if granted.is_fresh() => return Ok(Some(granted)),
                News::Granted(_) | News::LookAgain => match self.look_again(id, wish).await? {
                    Look::Granted(granted) if granted.is_fresh() => return Ok(Some(granted)),
                    Look::Granted(_) => {
                        is_notified = true;
                        stale += 1;
                        if stale == STALE_GRANTS {
                            return Err(TOO_LATE);
                        }
                    }
                    Look::Waiting => {}
                    Look::Gone(code) => return self.leave_line(code, wish.weight).await,
                },
                News::Gone(code) => return self.leave_line(code, wish.weight).await,
            }
        }
    }

    /// It does not stand in line any more. `None` to go back to where it stood.
    async fn leave_line(&self, code: i64, weight: u32) -> Result<Option<Granted>, AcquireError> {
        match code {
            CLOSED => Err(AcquireError::Closed),
            TOO_HEAVY => Err(AcquireError::TooHeavy { weight, capacity: self.card().await?.slots() }),
            EVICTED => Err(AcquireError::Lost(ending(code))),
            _ => Ok(None),
        }
    }

    async fn look_again(&self, id: &Arc<str>, wish: &Wish) -> Result<Look, AcquireError> {
        let answered = self.fleet().link.run(&lua::ACQUIRE, &self.shared.name.keys, None, |_, command| {
            command.arg(&**id);
        });
        let answered = answered.await?;
        let mut words = Words::of(answered.value.clone())?;
        match words.text()?.as_str() {
            "granted" => {
                self.note_open(&mut words)?;
                Ok(Look::Granted(self.read_grant(&mut words, &answered, wish.ttl)?))
            }
            "waiting" => {
                let clock = ServerClock::new(words.some_seconds()?, &answered);
                self.fleet().note_clock(clock);
                Ok(Look::Waiting)
            }
            _ => Ok(Look::Gone(words.number()?)),
        }
    }

    fn read_grant(
        &self,
        words: &mut Words,
        answered: &Answered,
        ttl: Option<Duration>,
    ) -> Result<Granted, HomeError> {
        let (slot, token, waited) = (words.number()?, words.number()?, span(words.some_seconds()?));
        self.fleet().note_clock(ServerClock::new(words.some_seconds()?, answered));
        let lease = ttl.map_or(self.shared.heartbeat, |ttl| ttl.min(self.shared.heartbeat));
        let safe_until = answered.sent.checked_add(lease).unwrap_or_else(far_future);
        Ok(Granted { slot, token, waited, since: answered.sent, safe_until })
    }

    fn lease(&self, id: &Arc<str>, granted: Granted, wish: &Wish) -> Lease {
        let hold = Hold::new(Arc::clone(id), granted, wish.weight, wish.ttl, self.shared.heartbeat);
        let hold = Arc::new(hold);
        self.fleet().hold(&self.shared.name, &hold);
        Lease { semaphore: self.unanchored(), hold, errand: Some(wish.errand.clone()), is_over: false }
    }

    // Ending

    /// Gives back in the background whatever the id has.
    fn give_back(&self, id: Arc<str>, how: How, errand: Option<Errand>) {
        let this = self.unanchored();
        self.fleet().give_back(async move {
            let _errand = errand;
            let started = Instant::now();
            while this.end_here(&id, how).await.is_err_and(|error| error.is_unreachable())
                && started.elapsed() < GIVING_BACK
            {}
        });
    }

    /// Ends whatever the id has. Needs a runtime with timers around it.
    async fn end_here(&self, id: &str, how: How) -> Result<Ended, HomeError> {
        let is_others = !self.fleet().ids.is_own(id);
        let answered =
            self.fleet().link.run(&lua::RELEASE, &self.shared.name.keys, None, |again, command| {
                command.arg(id).arg(how.word()).arg(u8::from(is_others)).arg(u8::from(again));
            });
        let answered = answered.await?;
        let mut ended = read_ended(answered.value)?;
        let is_own_doing = match ended.outcome {
            Outcome::Gone(0 | NOBODY_KNOWS) => true,
            Outcome::Gone(EVICTED) => matches!(how, How::Evicted),
            _ => false,
        };
        if is_own_doing && answered.again {
            // It was an earlier attempt of this very call.
            ended.outcome = Outcome::Ended;
        }
        Ok(ended)
    }

    async fn end(&self, id: Arc<str>, how: How) -> Result<(), ReleaseError> {
        let this = self.unanchored();
        let ended = self
            .fleet()
            .on_own_thread(|_| async move { this.end_here(&id, how).await.map(|ended| (ended, id)) });
        let (ended, id) = ended.await?;
        match ended.outcome {
            Outcome::Ended | Outcome::Left => Ok(()),
            Outcome::Gone(code) => Err(self.why_not_held(&id, code).into()),
        }
    }

    fn why_not_held(&self, id: &str, code: i64) -> NotHeld {
        match ending(code) {
            // The ids of a name can be told; that this one was ever issued, nobody remembers.
            NotHeld::Released if !ids::may_be_of(id, &self.shared.name.name) => NotHeld::Unknown,
            why => why,
        }
    }

    /// Ends by id what a guard in this process may still believe to hold, and tells that guard.
    async fn end_by_id(&self, id: &PermitId, how: How, why: NotHeld) -> Result<(), ReleaseError> {
        let id: Arc<str> = id.to_string().into();
        self.end(Arc::clone(&id), how).await?;
        let hold = self.fleet().held(&id);
        self.fleet().let_go(&id);
        if let Some(hold) = hold {
            hold.lose(why);
        }
        Ok(())
    }

    async fn renew_id(&self, id: Arc<str>, ttl: Option<Duration>) -> Result<(), RenewError> {
        let asked = Arc::clone(&id);
        // An id of this process has its heartbeats.
        let heartbeat = if self.fleet().ids.is_own(&id) { Duration::ZERO } else { self.shared.heartbeat };
        let vouched = ttl.map_or(heartbeat, |ttl| ttl.min(heartbeat));
        let answered = self.run(&lua::RENEW, move |command| {
            command.arg(&*asked).arg(seconds(ttl.unwrap_or_default())).arg(seconds(vouched));
        });
        let answered = answered.await?;
        let mut words = Words::of(answered.value)?;
        if words.text()? != "renewed" {
            let why = self.why_not_held(&id, words.number()?);
            return Err(why.into());
        }
        if let Some(hold) = self.fleet().held(&id) {
            self.fleet().move_end(&hold, |hold| hold.renew(ttl, answered.sent));
        }
        Ok(())
    }
}

enum Look {
    Granted(Granted),
    Waiting,
    Gone(i64),
}

const TOO_LATE: AcquireError = AcquireError::Lost(NotHeld::Lost(Loss::Expired));

fn read_ended(value: Value) -> Result<Ended, HomeError> {
    let mut words = Words::of(value)?;
    let word = words.text()?;
    let code = words.number()?;
    let outcome = match word.as_str() {
        "ended" => Outcome::Ended,
        "left" => Outcome::Left,
        _ => Outcome::Gone(code),
    };
    Ok(Ended { outcome, held: words.number()?, slots: words.number()?, waiting: words.number()? })
}

fn far_future() -> Instant {
    Instant::now() + Duration::from_secs(60 * 60 * 24 * 365 * 30)
}

impl RemoteSemaphore for RedisSemaphore {
    fn name(&self) -> &str {
        &self.shared.name.name
    }

    fn open(&self) -> Answer<'_, Result<(), BuildError>> {
        Box::pin(self.agree())
    }

    fn acquire(&self, wish: Wish) -> Answer<'static, Result<Box<dyn RemoteLease>, AcquireError>> {
        if wish.weight == 0 {
            return Box::pin(std::future::ready(Err(AcquireError::ZeroWeight)));
        }
        let (client, answer) = oneshot::channel();
        self.fleet().carry_out(self.unanchored().serve(wish, client));
        let anchor = self.anchor.clone();
        Box::pin(async move {
            let mut lease = answer.await.unwrap_or_else(|_| Err(gone().into()))?;
            lease.semaphore.anchor = anchor;
            lease.errand = None;
            Ok(Box::new(lease) as Box<dyn RemoteLease>)
        })
    }

    fn release(&self, id: &PermitId) -> Answer<'_, Result<(), ReleaseError>> {
        let id = id.clone();
        Box::pin(async move { self.end_by_id(&id, How::Released, NotHeld::Released).await })
    }

    fn release_latest(&self) -> Answer<'_, Result<PermitId, ReleaseError>> {
        let task = TaskKey::current();
        Box::pin(async move {
            // What was lost meanwhile is not the latest any more: then it is the one before.
            while let Some(latest) = self.fleet().latest_detached(task, &self.shared.name) {
                let id = PermitId::remote(Arc::clone(&latest));
                match self.end_by_id(&id, How::Released, NotHeld::Released).await {
                    Err(ReleaseError::NotHeld(_)) => self.fleet().let_go(&latest),
                    released => return released.map(|()| id),
                }
            }
            Err(ReleaseError::NothingDetached)
        })
    }

    fn renew(&self, id: &PermitId, ttl: Option<Duration>) -> Answer<'_, Result<(), RenewError>> {
        let id: Arc<str> = id.to_string().into();
        Box::pin(self.renew_id(id, ttl))
    }

    fn evict(&self, id: &PermitId) -> Answer<'_, Result<(), ReleaseError>> {
        let id = id.clone();
        let why = NotHeld::Lost(semafor_core::Loss::Evicted);
        Box::pin(async move { self.end_by_id(&id, How::Evicted, why).await })
    }

    fn locked(&self) -> Answer<'_, Result<bool, HomeError>> {
        Box::pin(async move {
            let card = self.card().await?;
            Ok(card.is_locked())
        })
    }

    fn resize(&self, slots: u32) -> Answer<'_, Result<(), HomeError>> {
        Box::pin(async move {
            self.run(&lua::RESIZE, move |command| {
                command.arg(slots);
            })
            .await?;
            self.shared.slots.store(slots, Ordering::Relaxed);
            self.shared.is_open.store(true, Ordering::Release);
            Ok(())
        })
    }

    fn close(&self) -> Answer<'_, Result<(), HomeError>> {
        Box::pin(async move { self.run(&lua::CLOSE, |_| {}).await.map(drop) })
    }

    fn is_closed(&self) -> Answer<'_, Result<bool, HomeError>> {
        Box::pin(async move {
            let card = self.card().await?;
            let epoch = self.shared.epoch.load(Ordering::Relaxed);
            Ok(card.is_closed() || epoch >= 0 && epoch < card.epoch())
        })
    }

    fn stats(&self) -> Answer<'_, Result<Stats, HomeError>> {
        Box::pin(async move {
            let slots = self.shared.slots.load(Ordering::Relaxed);
            Ok(self.card().await?.into_stats(Arc::clone(&self.shared.name.name), slots))
        })
    }

    fn holders(&self) -> Answer<'_, Result<Vec<HolderInfo>, HomeError>> {
        Box::pin(async move { inspect::holders(self.run(&lua::LIST, |_| {}).await?.value) })
    }

    fn waiters(&self) -> Answer<'_, Result<Vec<WaiterInfo>, HomeError>> {
        Box::pin(async move { inspect::waiters(self.run(&lua::LIST, |_| {}).await?.value) })
    }
}

impl RedisSemaphore {
    async fn card(&self) -> Result<inspect::Card, HomeError> {
        inspect::Card::read(self.run(&lua::CARD, |_| {}).await?.value)
    }
}

/// Somebody looks after what an id has. If it goes away before it is done, with the runtime it was in, say, this gives back
/// whatever there is.
struct Ward {
    semaphore: RedisSemaphore,
    id: Arc<str>,
    how: How,
    errand: Option<Errand>,
    /// True if the server may have heard of the id.
    is_needed: AtomicBool,
}

impl Ward {
    fn new(
        semaphore: &RedisSemaphore,
        id: &Arc<str>,
        how: How,
        errand: Option<Errand>,
        is_needed: bool,
    ) -> Self {
        let is_needed = AtomicBool::new(is_needed);
        Self { semaphore: semaphore.unanchored(), id: Arc::clone(id), how, errand, is_needed }
    }

    fn dismiss(&mut self) {
        *self.is_needed.get_mut() = false;
        self.semaphore.fleet().discharge(&self.id);
    }
}

impl Drop for Ward {
    fn drop(&mut self) {
        if *self.is_needed.get_mut() {
            self.semaphore.fleet().discharge(&self.id);
            self.semaphore.give_back(Arc::clone(&self.id), self.how, self.errand.take());
        }
    }
}

/// A slot, held until this is dropped.
struct Lease {
    semaphore: RedisSemaphore,
    hold: Arc<Hold>,
    /// Until it has arrived where it was asked for.
    errand: Option<Errand>,
    is_over: bool,
}

impl RemoteLease for Lease {
    fn name(&self) -> &str {
        self.semaphore.name()
    }

    fn id(&self) -> PermitId {
        PermitId::remote(Arc::clone(&self.hold.id))
    }

    fn slot(&self) -> u32 {
        self.hold.slot
    }

    fn fencing_token(&self) -> u64 {
        self.hold.token
    }

    fn waited(&self) -> Duration {
        self.hold.waited
    }

    fn expires_at(&self) -> Option<Instant> {
        self.hold.ends_at()
    }

    fn safe_until(&self) -> Option<Instant> {
        self.hold.safe_until()
    }

    fn why_not_held(&self) -> Option<NotHeld> {
        self.hold.why_not_held()
    }

    fn lost_signal(&self) -> CancellationToken {
        self.hold.lost_signal()
    }

    fn renew(&self, ttl: Option<Duration>) -> Answer<'_, Result<(), RenewError>> {
        Box::pin(async move {
            match self.hold.why_not_held() {
                Some(why) => Err(why.into()),
                None => self.semaphore.renew_id(Arc::clone(&self.hold.id), ttl).await,
            }
        })
    }

    fn release(mut self: Box<Self>) -> Answer<'static, Result<(), ReleaseError>> {
        self.is_over = true;
        let lost = self.hold.why_not_held();
        self.semaphore.fleet().let_go(&self.hold.id);
        self.hold.end();
        let (semaphore, id) = (self.semaphore.clone(), Arc::clone(&self.hold.id));
        let (answer, answered) = oneshot::channel();
        let this = semaphore.unanchored();
        let mut ward = Ward::new(&this, &id, How::Released, None, true);
        semaphore.fleet().carry_out(async move {
            let ended = this.end_here(&id, How::Released).await;
            if !ended.as_ref().is_err_and(HomeError::is_unreachable) {
                ward.dismiss();
            }
            let _ = answer.send(ended.map(|ended| (ended, id)));
        });
        Box::pin(async move {
            let (ended, id) = answered.await.unwrap_or_else(|_| Err(gone()))?;
            match ended.outcome {
                Outcome::Ended | Outcome::Left => Ok(()),
                Outcome::Gone(code) => Err(lost.unwrap_or_else(|| semaphore.why_not_held(&id, code)).into()),
            }
        })
    }

    fn detach(mut self: Box<Self>) -> PermitId {
        self.is_over = true;
        let fleet = self.semaphore.fleet();
        fleet.detach(&self.semaphore.shared.name, &self.hold, self.semaphore.anchor.clone());
        self.id()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_over {
            self.semaphore.fleet().let_go(&self.hold.id);
            self.hold.end();
            // Also if it was lost: that may be known, or only believed, here.
            self.semaphore.give_back(Arc::clone(&self.hold.id), How::Released, self.errand.take());
        }
    }
}
