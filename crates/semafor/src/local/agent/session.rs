//! One client's connection.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::geteuid;
use semafor_core::NotHeld;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::absent::AbsentGrant;
use super::journal::{Client, Entry, Grant};
use super::renewals::{Holder, Registered, Renewals};
use super::{Shared, by_id};
use crate::error::{AcquireError, BuildError, ReleaseError, RenewError, ResizeError};
use crate::local::lifeline::ProcessKey;
use crate::local::protocol::{
    AcquireRequest, AgentStatus, Call, PAGE, PROTOCOL, Refusal, Reply, Request, Response, Target, frame,
    length, not_understood, shorten,
};
use crate::stats::Who;
use crate::{Permit, PermitId, Semaphore, Span, StatsQuery};

/// Replies that a client has not read yet. With more, the agent stops reading its requests.
const MAX_UNREAD_REPLIES: usize = 64;

type Outcome = Result<Permit<'static>, AcquireError>;
type Acquiring = Pin<Box<dyn Future<Output = Outcome> + Send>>;

struct Session {
    shared: Arc<Shared>,
    /// The client's process id, as the kernel reports it.
    pid: Option<u32>,
    /// How a later agent can find out whether it is alive; set when it is first needed.
    client: Option<Client>,
    /// The client is told when another client renews one of its leases.
    hears_renewals: bool,
    /// This many of the next calls were sent before, on a former connection.
    repeated_calls: usize,
    handles: HashMap<u64, Semaphore>,
    state: Arc<Mutex<ClientState>>,
    out: mpsc::Sender<Vec<u8>>,
}

/// What a client waits for and holds, by the number of its call. Drop leaves the line.
#[derive(Default)]
struct ClientState {
    in_line: HashMap<u64, (Arc<InLine>, AbortHandle)>,
    leases: HashMap<u64, HeldGrant>,
}

/// A waiter. `None` once it has left the line.
struct InLine(Mutex<Option<Acquiring>>);

struct HeldGrant {
    permit: Permit<'static>,
    /// It was acquired with a time to live.
    has_ttl: bool,
    watch: Watch,
    /// The id by which the client knows it. A former agent may have issued it.
    id: Arc<str>,
    // Dropped after the permit: until the permit is released, the grant is live.
    entry: Entry,
}

impl HeldGrant {
    /// True if its lease has an end. A renewal may have changed that.
    fn has_end(&self) -> bool {
        if self.permit.is_lost() { self.has_ttl } else { self.permit.expires_at().is_some() }
    }
}

/// Sends messages to the client when the lease is lost or renewed by another client. Ends with the lease.
#[derive(Default)]
struct Watch {
    loss: Option<AbortHandle>,
    _renewals: Option<Registered>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = &self.loss {
            task.abort();
        }
    }
}

/// Counts a client for as long as its task runs.
struct ConnectedClient(Arc<Shared>);

impl Drop for ConnectedClient {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::Relaxed);
        self.0.client_left.notify_one();
    }
}

/// Serves a connection. Connections of other users are refused.
pub(super) fn start(shared: &Arc<Shared>, stream: UnixStream) {
    let Ok(peer) = stream.peer_cred() else { return };
    if peer.uid() != geteuid().as_raw() {
        return;
    }
    shared.clients.fetch_add(1, Ordering::Relaxed);
    let connected = ConnectedClient(Arc::clone(shared));
    let (reader, writer) = stream.into_split();
    let (out, unsent) = mpsc::channel(MAX_UNREAD_REPLIES);
    let session = Session {
        shared: Arc::clone(shared),
        // Zero if the process is in a pid namespace that we do not see.
        pid: peer.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0),
        client: None,
        hears_renewals: false,
        repeated_calls: 0,
        handles: HashMap::new(),
        state: Arc::default(),
        out,
    };
    tokio::spawn(async move {
        let _connected = connected;
        let mut session = session;
        let writing = tokio::spawn(write(writer, unsent));
        // It does not matter how the connection ended.
        let _ = session.read_requests(reader).await;
        session.leave();
        writing.abort();
    });
}

async fn write(mut writer: OwnedWriteHalf, mut unsent: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    while let Some(frame) = unsent.recv().await {
        writer.write_all(&frame).await?;
    }
    Ok(())
}

impl Session {
    async fn read_requests(&mut self, mut reader: OwnedReadHalf) -> io::Result<()> {
        let mut message = Vec::new();
        loop {
            let mut prefix = [0; 4];
            reader.read_exact(&mut prefix).await?;
            message.resize(length(prefix)?, 0);
            reader.read_exact(&mut message).await?;
            match serde_json::from_slice(&message) {
                Ok(Call { number, request }) => self.handle_request(number, request).await,
                Err(error) => {
                    let value = serde_json::from_slice::<serde_json::Value>(&message)?;
                    let number = value.get("n").and_then(serde_json::Value::as_u64).unwrap_or_default();
                    self.send(number, not_understood(error.to_string())).await;
                }
            }
        }
    }

    async fn send(&self, number: u64, response: Response) {
        send_reply(&self.out, number, response).await;
    }

    /// Releases everything. If a copy of the process is alive, which shows by its lifeline, the slots stay occupied.
    fn leave(&self) {
        let (in_line, leases) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.in_line), std::mem::take(&mut state.leases))
        };
        for (in_line, task) in in_line.values() {
            in_line.leave(task);
        }
        let Some(client) = self.client.filter(|client| self.shared.is_held(*client)) else { return };
        for (_, lease) in leases {
            let HeldGrant { permit, has_ttl, id, entry, watch } = lease;
            drop(watch);
            if let Some(name) = permit.gate().map(|gate| gate.shared_name()) {
                self.shared.absent.keep(name, id, AbsentGrant { permit, entry, client, has_ttl });
            }
        }
    }

    fn client(&mut self) -> Client {
        *self.client.get_or_insert_with(|| Client { lifeline: None, process: self.pid.map(ProcessKey::of) })
    }

    fn handle_hello(&mut self, lifeline: Option<u32>) -> Response {
        // A lifeline in another file proves nothing here.
        let process = self.pid.map(ProcessKey::pid_only);
        let client = Client { lifeline, process };
        self.client = Some(client).filter(|client| self.shared.is_held(*client));
        Response::Welcome {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
        }
    }

    async fn handle_request(&mut self, number: u64, request: Request) {
        let is_repeated = self.repeated_calls > 0;
        self.repeated_calls = self.repeated_calls.saturating_sub(1);
        let response = match request {
            Request::Hello { lifeline, hears_renewals, .. } => {
                self.hears_renewals = hears_renewals;
                self.handle_hello(lifeline)
            }
            Request::Reconnected { calls } => {
                self.repeated_calls = calls;
                if let Some(lifeline) = self.client().lifeline {
                    self.shared.absent.release_rest(lifeline);
                }
                return;
            }
            Request::Acquire { of, request } => return self.acquire(number, &of, request, is_repeated).await,
            Request::Reclaim { of, weight, slot, id, slots } => {
                return self.reclaim(number, of, weight, slot, id, slots).await;
            }
            Request::Cancel { call } => return self.cancel(call),
            Request::Release { lease } => self.release(lease).await,
            Request::Detach { lease } => return self.detach(lease),
            Request::Forget { handle } => {
                self.handles.remove(&handle);
                return;
            }
            Request::AllStats { names } => return self.all_stats(number, names).await,
            Request::Status => self.status(),
            Request::Stop { force } => self.stop(number, force).await,
            Request::Open(of) => {
                self.shared.wait_until_open().await;
                self.open(&of).map_or_else(|error| Response::Refused(error.into()), |_| Response::Done)
            }
            Request::Resize { of, slots } => self.resize(of, slots).await,
            Request::Holders(of) => return self.holders(number, &of).await,
            Request::Waiters(of) => return self.waiters(number, &of).await,
            request => self.answer(request).await,
        };
        self.send(number, response).await;
    }

    /// The semaphore of a handle. The handle's number of slots is used only when it is opened.
    fn open(&mut self, of: &Target) -> Result<Semaphore, BuildError> {
        if let Some(semaphore) = self.handles.get(&of.handle) {
            return Ok(semaphore.clone());
        }
        let mut builder = self.shared.registry.named(&*of.name);
        if let Some(slots) = of.slots {
            builder = builder.slots(slots);
        }
        if let Some(limit) = of.max_waiting {
            builder = builder.max_waiting(limit);
        }
        let semaphore = builder.build()?;
        self.handles.insert(of.handle, semaphore.clone());
        Ok(semaphore)
    }

    /// The same for a request that changes the semaphore: from now on the handle refers to it.
    fn take_up(&mut self, of: &Target) -> Option<Semaphore> {
        let semaphore = self.look_up(of)?;
        self.handles.insert(of.handle, semaphore.clone());
        Some(semaphore)
    }

    /// The semaphore of a handle, if the agent knows its name.
    fn look_up(&mut self, of: &Target) -> Option<Semaphore> {
        if let Some(semaphore) = self.handles.get(&of.handle) {
            return Some(semaphore.clone());
        }
        // With its current number of slots, not the client's.
        self.shared.registry.named(&*of.name).build().ok()
    }

    /// The semaphore of a handle that was open on a former connection, with its current number of slots.
    fn reopen(&mut self, of: &Target) -> Result<Semaphore, BuildError> {
        match self.open(&Target { slots: None, ..of.clone() }) {
            Err(BuildError::SlotsNotSet { .. }) => self.open(of),
            opened => opened,
        }
    }

    async fn acquire(&mut self, number: u64, of: &Target, mut request: AcquireRequest, is_repeated: bool) {
        let asked = Instant::now();
        self.shared.wait_until_open().await;
        request.timeout = request.timeout.map(|timeout| timeout.saturating_sub(asked.elapsed()));
        let opened = if is_repeated || of.is_agreed { self.reopen(of) } else { self.open(of) };
        let semaphore = match opened {
            Ok(semaphore) => semaphore,
            Err(error) => return self.send(number, Response::Refused(error.into())).await,
        };
        let host = Some(Arc::clone(&self.shared.host));
        // Clients shorten them, but a faulty client must not break the lists of others.
        let (label, command) = (request.label.as_ref().map(shorten), request.command.as_ref().map(shorten));
        let who = Who { label, command, host, pid: self.pid, grace: request.grace };
        let mut acquiring: Acquiring = Box::pin(async move {
            let mut acquire = semaphore.acquire().weight(request.weight).on_behalf_of(who);
            if let Some(ttl) = request.ttl {
                acquire = acquire.ttl(ttl);
            }
            if let Some(timeout) = request.timeout {
                acquire = acquire.timeout(timeout);
            }
            if !request.waits {
                acquire = acquire.now();
            }
            acquire.await.map(Permit::into_owned)
        });
        // The first poll takes the place in line: here, where calls come in order.
        let (has_ttl, weight) = (request.ttl.is_some(), request.weight);
        let context = AcquireContext { client: self.client(), weight, has_ttl };
        let first_poll = acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        match first_poll {
            Poll::Ready(outcome) => {
                let outcome = outcome.map(|permit| context.register_grant(&self.shared, permit));
                report_outcome(&self.state, &self.out, number, outcome, self.renewals()).await;
            }
            Poll::Pending => self.wait(number, acquiring, context),
        }
    }

    fn wait(&self, number: u64, acquiring: Acquiring, context: AcquireContext) {
        let in_line = Arc::new(InLine(Mutex::new(Some(acquiring))));
        let (state, out, waiting) = (Arc::downgrade(&self.state), self.out.clone(), Arc::clone(&in_line));
        let (shared, renewals) = (Arc::downgrade(&self.shared), self.renewals());
        let task = tokio::spawn(async move {
            let Some(outcome) = std::future::poll_fn(|cx| waiting.poll(cx)).await else { return };
            let (Some(state), Some(shared)) = (state.upgrade(), shared.upgrade()) else { return };
            state.lock().in_line.remove(&number);
            let outcome = outcome.map(|permit| context.register_grant(&shared, permit));
            drop(shared);
            report_outcome(&state, &out, number, outcome, renewals).await;
        });
        self.state.lock().in_line.insert(number, (in_line, task.abort_handle()));
    }

    async fn reclaim(
        &mut self,
        number: u64,
        of: Target,
        weight: u32,
        slot: Option<u32>,
        id: Option<Arc<str>>,
        slots: Option<u32>,
    ) {
        let (client, slot) = (self.client(), slot.unwrap_or(0));
        let absent = id.as_ref().and_then(|id| self.shared.absent.take(client, &of.name, id));
        let lease = match (absent, id) {
            (Some(AbsentGrant { permit, entry, has_ttl, .. }), Some(id)) => {
                HeldGrant { permit, has_ttl, watch: Watch::default(), id, entry }
            }
            (_, id) => {
                // This agent does not know the grant, but the client holds it. If this agent does not know the name
                // either, the client's number of slots counts.
                let least = slot.saturating_add(1).max(weight).max(1);
                // The number at the grant is newer than the number at the open.
                let slots = slots.or(of.slots).or(Some(least));
                let Ok(semaphore) = self.reopen(&Target { slots, ..of }) else { return };
                let who = self.shared.former_holder(self.pid);
                let Some(permit) = semaphore.reserve(slot, weight, &who) else { return };
                AcquireContext { client, weight, has_ttl: false }.register_grant_as(&self.shared, permit, id)
            }
        };
        report_outcome(&self.state, &self.out, number, Ok(lease), self.renewals()).await;
    }

    fn cancel(&self, call: u64) {
        let (waiting, lease) = {
            let mut state = self.state.lock();
            (state.in_line.remove(&call), state.leases.remove(&call))
        };
        if let Some((in_line, task)) = waiting {
            in_line.leave(&task);
        }
        drop(lease);
    }

    async fn release(&self, lease: u64) -> Response {
        let lease = self.state.lock().leases.remove(&lease);
        match lease {
            None => Response::Refused(Refusal::NotHeld(NotHeld::Released.into())),
            Some(lease) => release_response(lease.permit.release().await),
        }
    }

    fn detach(&self, lease: u64) {
        let mut state = self.state.lock();
        if !state.leases.get(&lease).is_some_and(HeldGrant::has_end) {
            return;
        }
        let lease = state.leases.remove(&lease);
        drop(state);
        let Some(HeldGrant { permit, id, entry, watch, .. }) = lease else { return };
        drop(watch);
        if let Some(id) = self.shared.by_id.keep(permit, id, entry) {
            by_id::watch(&self.shared, id);
        }
    }

    async fn resize(&mut self, of: Target, slots: u32) -> Response {
        // A resize of a name that is not in use opens it with the new number of slots.
        let of = Target { slots: of.slots.or(Some(slots)), ..of };
        let semaphore = match self.take_up(&of) {
            Some(semaphore) => Ok(semaphore),
            None => self.open(&of),
        };
        match semaphore {
            Err(error) => Response::Refused(error.into()),
            Ok(semaphore) => match semaphore.resize(slots).await {
                Ok(()) => {
                    self.shared.journal.resized(&of.name, slots);
                    Response::Done
                }
                Err(ResizeError::ZeroSlots(_)) => Response::Refused(Refusal::ZeroSlots),
                Err(error) => Response::Refused(Refusal::Other(error.to_string())),
            },
        }
    }

    /// Requests that do not need the name to be open.
    async fn answer(&mut self, request: Request) -> Response {
        let of = match &request {
            Request::ReleaseId { of, .. } | Request::Renew { of, .. } | Request::Evict { of, .. } => of,
            Request::Locked(of) | Request::Close(of) | Request::IsClosed(of) | Request::Stats(of) => of,
            _ => return not_understood(format!("{request:?}")),
        };
        let found = if matches!(request, Request::Close(_)) { self.take_up(of) } else { self.look_up(of) };
        let semaphore = match found {
            Some(semaphore) => semaphore,
            None if matches!(request, Request::Stats(_)) => return Response::Stats(Vec::new()),
            None if matches!(request, Request::Locked(_) | Request::IsClosed(_)) => {
                return Response::Bool(false);
            }
            None if matches!(request, Request::Close(_)) => match self.open(of) {
                Ok(semaphore) => semaphore,
                Err(error) => return Response::Refused(error.into()),
            },
            None => return Response::Refused(Refusal::NotHeld(NotHeld::Unknown.into())),
        };
        let by_id = &self.shared.by_id;
        // An id that a former agent issued stands for another one here.
        let current_id = |of: &Target, id: &str| {
            let id = parse_id(id);
            by_id.current_id(&of.name, &id).unwrap_or(id)
        };
        match request {
            Request::ReleaseId { of, id } => {
                let id = current_id(&of, &id);
                let released = semaphore.release(&id).await;
                // Before the reply: the next agent must not hold it.
                by_id.remove_if_ended(&id);
                release_response(released)
            }
            Request::Evict { of, id } => {
                let id = current_id(&of, &id);
                let evicted = semaphore.evict(&id).await;
                by_id.remove_if_ended(&id);
                release_response(evicted)
            }
            Request::Renew { of, id, ttl } => {
                let id = current_id(&of, &id);
                match semaphore.renew(&id, ttl.map_or(Span::UNLIMITED, Span::from)).await {
                    Ok(()) => {
                        by_id.note_renewal(&id);
                        self.tell_holder(&id, ttl);
                        Response::Done
                    }
                    Err(RenewError::NotHeld(why)) => Response::Refused(Refusal::NotHeld(why.into())),
                    Err(error) => Response::Refused(Refusal::Other(error.to_string())),
                }
            }
            Request::Close(_) => semaphore.close().await.map_or_else(error_response, |()| Response::Done),
            Request::Locked(_) => semaphore.locked().await.map_or_else(error_response, Response::Bool),
            Request::IsClosed(_) => semaphore.is_closed().await.map_or_else(error_response, Response::Bool),
            _ => semaphore
                .stats()
                .await
                .map_or_else(error_response, |stats| Response::Stats(vec![stats.into()])),
        }
    }

    /// Where holders are registered; `None` if this client does not understand messages about renewals.
    fn renewals(&self) -> Option<Renewals> {
        self.hears_renewals.then(|| self.shared.renewals.clone())
    }

    /// Tells the holder that its lease was renewed. The client of this session knows it from its own reply.
    fn tell_holder(&self, id: &PermitId, ttl: Option<Duration>) {
        let holder = self.shared.renewals.holder(id).filter(|holder| !holder.out.same_channel(&self.out));
        if let Some(Holder { out, number }) = holder {
            tokio::spawn(async move { send_reply(&out, number, Response::Renewed { ttl }).await });
        }
    }

    async fn holders(&mut self, number: u64, of: &Target) {
        let list = match self.look_up(of) {
            Some(semaphore) => semaphore.holders().await.unwrap_or_default(),
            None => Vec::new(),
        };
        self.send_pages(number, list, Response::Holders).await;
    }

    async fn waiters(&mut self, number: u64, of: &Target) {
        let list = match self.look_up(of) {
            Some(semaphore) => semaphore.waiters().await.unwrap_or_default(),
            None => Vec::new(),
        };
        self.send_pages(number, list, Response::Waiters).await;
    }

    async fn all_stats(&self, number: u64, names: Option<Vec<String>>) {
        let query = names.into_iter().fold(StatsQuery::default(), StatsQuery::names);
        let list = self.shared.registry.stats(&query);
        self.send_pages(number, list, Response::Stats).await;
    }

    async fn send_pages<A, B: From<A>>(
        &self,
        number: u64,
        list: Vec<A>,
        to_response: fn(Vec<B>) -> Response,
    ) {
        let mut list = list.into_iter().map(B::from);
        loop {
            let page: Vec<B> = list.by_ref().take(PAGE).collect();
            let more = list.len() > 0;
            if self.out.send(frame(&Reply { number, more, response: to_response(page) })).await.is_err()
                || !more
            {
                return;
            }
        }
    }

    fn status(&self) -> Response {
        let (held, waiting) = self.shared.held_and_waiting();
        Response::Status(AgentStatus {
            uptime: self.shared.since.elapsed(),
            clients: self.shared.clients.load(Ordering::Relaxed),
            names: self.shared.registry.len(),
            held,
            waiting,
        })
    }

    async fn stop(&self, number: u64, force: bool) -> Response {
        let (held, waiting) = self.shared.held_and_waiting();
        if !force && (held, waiting) != (0, 0) {
            return Response::InUse { held, waiting };
        }
        self.send(number, Response::Done).await;
        // The reply has to be sent before the agent ends.
        while self.out.capacity() < MAX_UNREAD_REPLIES {
            tokio::task::yield_now().await;
        }
        self.shared.stop.notify_one();
        Response::Done
    }
}

/// The client is gone, so its waiters leave the line.
impl Drop for ClientState {
    fn drop(&mut self) {
        for (in_line, task) in self.in_line.values() {
            in_line.leave(task);
        }
    }
}

impl InLine {
    fn leave(&self, task: &AbortHandle) {
        drop(self.0.lock().take());
        task.abort();
    }

    /// Returns `None` if it has left the line.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Outcome>> {
        let mut acquiring = self.0.lock();
        match acquiring.as_mut() {
            None => Poll::Ready(None),
            Some(future) => future.as_mut().poll(cx).map(|outcome| {
                *acquiring = None;
                Some(outcome)
            }),
        }
    }
}

/// The facts about an acquire that are needed when it is granted.
#[derive(Clone, Copy)]
struct AcquireContext {
    client: Client,
    weight: u32,
    has_ttl: bool,
}

impl AcquireContext {
    /// Writes a grant to the journal, before the reply is sent.
    fn register_grant(self, shared: &Shared, permit: Permit<'static>) -> HeldGrant {
        self.register_grant_as(shared, permit, None)
    }

    /// The same, for a grant that the client knows by another id.
    fn register_grant_as(self, shared: &Shared, permit: Permit<'static>, id: Option<Arc<str>>) -> HeldGrant {
        let id = id.unwrap_or_else(|| permit.id().to_string().into());
        let (name, slots) =
            permit.gate().map_or_else(|| ("".into(), 1), |gate| (gate.shared_name(), gate.slots()));
        let entry = shared.journal.grant(Grant {
            name,
            slots,
            id: Arc::clone(&id),
            slot: permit.slot(),
            weight: self.weight,
            token: permit.fencing_token(),
            client: self.client,
            by_id: None,
        });
        HeldGrant { permit, has_ttl: self.has_ttl, watch: Watch::default(), id, entry }
    }
}

/// Sends the outcome of an acquire. After that, sends a message when the grant is lost.
async fn report_outcome(
    state: &Arc<Mutex<ClientState>>,
    out: &mpsc::Sender<Vec<u8>>,
    number: u64,
    outcome: Result<HeldGrant, AcquireError>,
    renewals: Option<Renewals>,
) {
    let lease = match outcome {
        Ok(lease) => lease,
        Err(error) => return send_reply(out, number, Response::Refused(error.into())).await,
    };
    let permit = &lease.permit;
    let (lost, permit_id) = (permit.lost_signal(), permit.id());
    let granted = Response::Granted {
        id: permit.id().to_string(),
        slot: permit.slot(),
        token: permit.fencing_token(),
        waited: permit.waited(),
        slots: permit.gate().map(|gate| gate.slots()),
    };
    state.lock().leases.insert(number, lease);
    send_reply(out, number, granted).await;

    // Only after the grant was sent.
    let (watched, out, own_out) = (Arc::downgrade(state), out.clone(), out.clone());
    let task = tokio::spawn(async move {
        lost.lost().await;
        let Some(state) = watched.upgrade() else { return };
        let lost_state = {
            let state = state.lock();
            state.leases.get(&number).map(|lease| (lease.permit.why_not_held(), lease.permit.is_leaving()))
        };
        let Some((why, is_kept)) = lost_state else { return };
        // A lease that has ended is dropped here. That also aborts this task, but only at its next await.
        let lease = if is_kept { None } else { state.lock().leases.remove(&number) };
        drop(state);
        let why = why.unwrap_or(NotHeld::Unknown).into();
        send_reply(&out, number, Response::Lost { why, is_kept }).await;
        drop(lease);
    });
    let mut state = state.lock();
    match state.leases.get_mut(&number) {
        Some(lease) => {
            let holder = Holder { out: own_out, number };
            let registered = renewals.map(|renewals| renewals.register(permit_id, holder));
            lease.watch = Watch { loss: Some(task.abort_handle()), _renewals: registered };
        }
        None => task.abort(),
    }
}

async fn send_reply(out: &mpsc::Sender<Vec<u8>>, number: u64, response: Response) {
    // A client that has gone needs no reply.
    let _ = out.send(frame(&Reply { number, more: false, response })).await;
}

/// An invalid text becomes an id that was never issued.
fn parse_id(id: &str) -> PermitId {
    id.parse().unwrap_or_else(|_| PermitId::remote(""))
}

fn release_response(outcome: Result<(), ReleaseError>) -> Response {
    match outcome {
        Ok(()) => Response::Done,
        Err(ReleaseError::NotHeld(why)) => Response::Refused(Refusal::NotHeld(why.into())),
        Err(error) => Response::Refused(Refusal::Other(error.to_string())),
    }
}

fn error_response(error: impl ToString) -> Response {
    Response::Refused(Refusal::Other(error.to_string()))
}
