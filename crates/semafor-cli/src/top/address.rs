//! The URL of the home without secrets, for the screen.

/// The URL without user, password and options, but with the namespace.
pub(super) fn shown(url: &str) -> String {
    let (base, options) = url.split_once('?').unwrap_or((url, ""));
    let base = match base.split_once("://") {
        Some((scheme, rest)) => {
            // A password may contain @, a host may not.
            let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            format!("{scheme}://{host}")
        }
        None => base.to_owned(),
    };
    let namespace = options.split('&').find_map(|option| option.strip_prefix("namespace="));
    namespace.map_or(base.clone(), |namespace| format!("{base} {namespace}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        for (url, wanted) in [
            ("local:", "local:"),
            ("redis://db:6379/0", "redis://db:6379/0"),
            ("redis://user:secret@db/0", "redis://db/0"),
            ("redis://:se@cr/et@db/0", "redis://db/0"),
            ("redis+sentinel://u:secret@a,b/main/0", "redis+sentinel://a,b/main/0"),
            ("unix:///run/redis.sock?db=0&user=u&pass=secret", "unix:///run/redis.sock"),
            ("redis://u:secret@db/?socket_timeout=5&namespace=my-app", "redis://db/ my-app"),
        ] {
            assert_eq!(shown(url), wanted);
        }
    }
}
