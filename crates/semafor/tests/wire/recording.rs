//! Repeats the recorded commands of the library, with other ids and times.
//!
//! Its scripts are transactions here. Their decisions (is a slot free, which waiter is first) are made by reads before
//! the transaction, which `WATCH` binds to it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use redis::{Connection, Pipeline, cmd};
use semafor_testkit::history::now as stamp;
use semafor_testkit::redis::RedisServer;
use serde_json::{Value, json};

use super::Mailboxes;

/// As `MONITOR` showed it, with blanks for the parts that vary.
pub(crate) const RECORDING: &str = include_str!("recording.txt");

/// The `ttl` of the second client that was recorded, in seconds.
pub(crate) const TTL: u32 = 3;

static SECTIONS: LazyLock<HashMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let mut sections: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut section = "";
    for line in RECORDING.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(title) => section = title,
            None => sections.entry(section).or_default().push(line),
        }
    }
    sections
});

/// One of the clients whose commands are repeated.
#[derive(Clone)]
struct RecordedClient {
    name: String,
    slots: u64,
    has_ttl: bool,
    id: String,
}

impl RecordedClient {
    fn key(&self, kind: &str) -> String {
        format!("adv-sem:semaphore_{kind}:{}", self.name)
    }

    fn notification(&self) -> String {
        format!("adv-sem:acquisition_notification:{}", self.id)
    }

    /// The commands of one script, about `id`.
    fn commands(&self, script: &str, id: &str) -> Pipeline {
        let section = if self.has_ttl { format!("{script} ttl={TTL}") } else { script.to_owned() };
        let mut pipeline = redis::pipe();
        pipeline.atomic();
        for line in SECTIONS.get(section.as_str()).unwrap_or_else(|| panic!("no {section:?} was recorded")) {
            let mut words = line.split(' ').map(|word| self.filled_in(word, id));
            let mut command = cmd(&words.next().expect("a command has a name"));
            for word in words {
                command.arg(word);
            }
            pipeline.add_command(command);
        }
        pipeline
    }

    /// `<now+180>` is a time, by the clock of this process: the library uses its own as well.
    fn filled_in(&self, word: &str, id: &str) -> String {
        let word = word.replace("<name>", &self.name).replace("<id>", id);
        let word = word.replace("<slots>", &self.slots.to_string());
        let later = word.strip_prefix("<now").and_then(|rest| rest.strip_suffix('>'));
        later.map_or(word.clone(), |later| {
            let later: f64 = if later.is_empty() { 0.0 } else { later.parse().expect("a number of seconds") };
            format!("{:.6}", now() + later)
        })
    }

    fn play(&self, connection: &mut Connection, script: &str) -> Vec<redis::Value> {
        let pipeline = self.commands(script, &self.id);
        pipeline.query(connection).unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Grants to the first in line as long as slots are free.
    fn serve(&self, connection: &mut Connection) {
        loop {
            cmd("WATCH").arg(self.key("main")).arg(self.key("waiting")).exec(connection).unwrap();
            let mut count = cmd("ZCOUNT");
            let held: u64 = count.arg(self.key("main")).arg(now()).arg("+inf").query(connection).unwrap();
            let mut range = cmd("ZRANGE");
            let first: Vec<String> = range.arg(self.key("waiting")).arg(0).arg(0).query(connection).unwrap();
            let Some(first) = first.first().filter(|_| held < self.slots) else {
                cmd("UNWATCH").exec(connection).unwrap();
                return;
            };
            // Nil if another client was faster.
            let _: Option<Vec<redis::Value>> =
                self.commands("wake_up_nexts", first).query(connection).unwrap();
        }
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_secs_f64()
}

/// As `uuid.uuid4().hex` makes them.
fn new_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{:012x}4{:03x}8{:015x}", stamp() & 0xffff_ffff_ffff, 0, NEXT.fetch_add(1, Ordering::Relaxed))
}

struct RecordedPeer {
    client: redis::Client,
    mailboxes: Arc<Mailboxes>,
    roles: Mutex<HashMap<String, (RecordedClient, Arc<AtomicBool>)>>,
}

pub(super) fn start_peer(
    server: &RedisServer,
    mailboxes: Arc<Mailboxes>,
) -> Box<dyn Fn(&Value) + Send + Sync> {
    let client = redis::Client::open(server.url()).expect("it is a URL");
    let actor = Arc::new(RecordedPeer { client, mailboxes, roles: Mutex::default() });
    Box::new(move |order| {
        let (actor, order) = (Arc::clone(&actor), order.clone());
        thread::spawn(move || actor.execute(&order));
    })
}

impl RecordedPeer {
    fn connection(&self) -> Connection {
        self.client.get_connection().expect("the server is up")
    }

    fn send_event(&self, order: &Value, event: &str, more: &Value) {
        let mut event_object = json!({ "who": order["who"], "event": event, "at": stamp() });
        for (field, value) in more.as_object().into_iter().flatten() {
            event_object[field] = value.clone();
        }
        self.mailboxes.deliver(event_object);
    }

    fn role(&self, order: &Value) -> (RecordedClient, Arc<AtomicBool>) {
        let mut roles = self.roles.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let role = RecordedClient {
                name: order["name"].as_str().expect("a name").to_owned(),
                slots: order["value"].as_u64().expect("a number of slots"),
                has_ttl: order["ttl"].is_u64(),
                id: new_id(),
            };
            (role, Arc::default())
        };
        roles.entry(order["who"].to_string()).or_insert_with(new).clone()
    }

    fn forget(&self, order: &Value) {
        self.roles.lock().unwrap_or_else(PoisonError::into_inner).remove(&order["who"].to_string());
    }

    fn execute(&self, order: &Value) {
        let (role, is_over) = self.role(order);
        match order["do"].as_str().expect("something to do") {
            "acquire" => self.acquire(order, &role, &is_over),
            "give_up" => is_over.store(true, Ordering::SeqCst),
            "release" => {
                let at = json!({ "at": stamp() });
                self.forget(order);
                role.play(&mut self.connection(), "release");
                self.send_event(order, "released", &at);
            }
            "release_and_wake" => {
                self.forget(order);
                self.release_and_serve(&role);
                self.send_event(order, "released", &json!({}));
            }
            "stats" => {
                let answers = role.play(&mut self.connection(), "get_acquired_stats");
                let number = |at: usize| redis::from_redis_value::<Option<u64>>(answers[at].clone()).unwrap();
                self.send_event(order, "stats", &json!({ "held": number(2), "slots": number(1) }));
            }
            other => panic!("unknown order {other}"),
        }
    }

    fn acquire(&self, order: &Value, role: &RecordedClient, is_over: &AtomicBool) {
        let mut connection = self.connection();
        role.play(&mut connection, "queue");
        loop {
            role.serve(&mut connection);
            let mut pop = cmd("BLPOP");
            // The library waits for a second; but can also be interrupted.
            let popped: Option<(String, String)> =
                pop.arg(role.notification()).arg(0.1).query(&mut connection).unwrap();
            if is_over.load(Ordering::SeqCst) {
                role.play(&mut connection, "release");
                self.forget(order);
                return self.send_event(order, "gave_up", &json!({}));
            }
            if popped.is_some() {
                break;
            }
        }
        let confirmed = role.play(&mut connection, "acquire");
        assert_eq!(confirmed[0], redis::Value::Int(1), "it was granted, and is still");
        self.send_event(order, "granted", &json!({ "id": role.id }));
    }

    fn release_and_serve(&self, role: &RecordedClient) {
        let mut connection = self.connection();
        loop {
            cmd("WATCH").arg(role.key("waiting")).exec(&mut connection).unwrap();
            let mut range = cmd("ZRANGE");
            let line: Vec<String> =
                range.arg(role.key("waiting")).arg(0).arg(0).query(&mut connection).unwrap();
            let first = line.first().expect("a waiter is in line");
            let mut both = role.commands("release", &role.id);
            for command in role.commands("wake_up_nexts", first).cmd_iter() {
                both.add_command(command.clone());
            }
            let done: Option<Vec<redis::Value>> = both.query(&mut connection).unwrap();
            if done.is_some() {
                return;
            }
        }
    }
}
