//! What clients have left on a server.

use super::RedisServer;

/// The keys of `namespace` that hold something of a process, or that will never be removed.
///
/// # Panics
///
/// If the server does not answer.
pub fn leftovers(server: &RedisServer, namespace: &str) -> Vec<String> {
    let mut connection = server.connection();
    let keys: Vec<String> =
        redis::cmd("KEYS").arg(format!("{namespace}:*")).query(&mut connection).expect("keys");
    let mut left = Vec::new();
    for key in keys {
        let kind = key[namespace.len() + 1..].split(':').next().unwrap_or_default();
        let found: Vec<String> = match kind {
            "semaphore_main" | "semaphore_ttl" | "semaphore_waiting" | "semaphore_waiting_heartbeat" => {
                let members = redis::cmd("ZRANGE").arg(&key).arg(0).arg(-1).query(&mut connection);
                members.expect("members")
            }
            "semaphore_records" => redis::cmd("HKEYS").arg(&key).query(&mut connection).expect("ids"),
            "acquisition_notification" => vec!["a notification".to_owned()],
            _ => Vec::new(),
        };
        // A field without a name belongs to no client.
        if found.iter().any(|id| !id.is_empty()) {
            left.push(format!("{found:?} in {key}"));
        }
        let expiry: i64 = redis::cmd("PTTL").arg(&key).query(&mut connection).expect("an expiry");
        if expiry == -1 {
            left.push(format!("{key} for ever"));
        }
    }
    left
}
