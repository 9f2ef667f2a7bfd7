//! Invalid command lines are refused with one line that names the wrong value and with the right exit code. Nothing is
//! done.

use semafor_testkit::cli::CommandEnv;

fn env() -> CommandEnv {
    CommandEnv::local(env!("CARGO_BIN_EXE_semafor"))
}

/// A command line, and what its error must mention.
type Case<'a> = (&'a [&'a str], &'a str);

#[track_caller]
fn assert_refused(env: &CommandEnv, code: i32, cases: &[Case<'_>]) {
    for (words, mentioned) in cases {
        let output = env.run(*words);
        let complaint = output.complaint(code);
        assert!(complaint.contains(mentioned), "{words:?}: {complaint:?} does not mention {mentioned:?}");
    }
}

#[test]
fn invalid_command_line_exits_with_64() {
    let env = env();
    assert_refused(
        &env,
        64,
        &[
            (&["run"], "COMMAND"),
            (&["run", "--"], "COMMAND"),
            (&["run", "--name", "x"], "COMMAND"),
            (&["run", "--slots", "0", "--", "true"], "'0'"),
            (&["run", "--slots", "abc", "--", "true"], "'abc'"),
            (&["run", "--slots", "-5%", "--", "true"], "'-5%'"),
            (&["run", "--slots", "99999999999", "--", "true"], "'99999999999'"),
            (&["run", "--slots", "", "--", "true"], "--slots"),
            (&["run", "--weight", "0", "--", "true"], "0"),
            (&["run", "--weight", "-1", "--", "true"], "-1"),
            (&["run", "--ttl", "0", "--", "true"], "'0'"),
            (&["run", "--ttl", "soon", "--", "true"], "'soon'"),
            (&["run", "--timeout", "x", "--", "true"], "'x'"),
            (&["run", "--timeout", "-1", "--", "true"], "-1"),
            (&["run", "--grace", "5 parsecs", "--", "true"], "'5 parsecs'"),
            (&["run", "--heartbeat", "0", "--", "true"], "'0'"),
            (&["run", "--on-lost", "cry", "--", "true"], "'cry'"),
            (&["run", "--quiet", "--verbose", "--", "true"], "--verbose"),
            (&["run", "--no-such-flag", "--", "true"], "--no-such-flag"),
            (&["no-such-command"], "'no-such-command'"),
            (&["acquire", "--slots", "0", "--ttl", "1m"], "'0'"),
            (&["acquire"], "--ttl"),
            (&["acquire", "--ttl", "0"], "'0'"),
            (&["release"], "ID"),
            (&["release", "x", "y", "z"], "z"),
            (&["release", "just-an-id"], "the name of the semaphore is missing"),
            (&["renew", "x", "y"], "--ttl"),
            (&["resize", "x"], "N"),
            (&["resize", "x", "0"], "'0'"),
            (&["resize", "x", "abc"], "'abc'"),
            (&["evict", "x"], "ID"),
            (&["inspect"], "NAME"),
            (&["status", "--limit", "many"], "'many'"),
            (&["top", "--interval", "0"], "'0'"),
            (&["agent", "restart"], "'restart'"),
            (&["agent", "status", "--force"], "--force"),
            (&["completions", "tcsh"], "'tcsh'"),
        ],
    );
    assert!(env.agents().is_empty(), "no agent was started");
}

#[test]
fn invalid_name_exits_with_64() {
    let env = env();
    let long = "x".repeat(600);
    assert_refused(
        &env,
        64,
        &[
            (&["run", "--name", "", "--", "true"], "empty"),
            (&["run", "--name", &long, "--", "true"], "600 bytes"),
            (&["acquire", "--name", "", "--ttl", "1m"], "empty"),
            (&["acquire", "--name", &long, "--ttl", "1m"], "600 bytes"),
            (&["release", "", "Zm9v"], "empty"),
        ],
    );
}

#[test]
fn invalid_url_exits_with_64() {
    let env = env();
    for url in ["redsi://localhost", "local", "local:here", "http://localhost/", "", "redis://:99999999"] {
        for words in [
            &["run", "--", "true"][..],
            &["status"],
            &["inspect", "it"],
            &["acquire", "--ttl", "1m"],
            &["resize", "it", "2"],
        ] {
            let mut command = env.semafor(words);
            command.env("SEMAFOR_URL", url);
            let output = env.output_of(command);
            let complaint = output.complaint(64);
            assert!(complaint.contains(url), "{words:?}: {complaint:?} does not mention {url:?}");
        }
    }
    assert_refused(&env, 64, &[(&["agent", "status", "--url", "redis://localhost"], "redis://…")]);
}

#[test]
fn password_in_a_url_is_not_printed() {
    let env = env();
    for url in ["redis://user:s3cret@127.0.0.1:1/", "redsi://user:s3cret@localhost", "redis://user:s3cret@:x"]
    {
        let output = env.run(["status", "--url", url]);
        assert!(!output.stderr.contains("s3cret"), "{}", output.stderr);
    }
}

#[test]
fn unreachable_redis_exits_with_69() {
    let env = env();
    // A port that was bound and closed again: nothing listens there.
    let closed =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it has one");
    let url = format!("redis://{closed}/");
    let url = url.as_str();
    let there = closed.to_string();
    assert_refused(
        &env,
        69,
        &[
            (&["run", "--url", url, "--", "true"], &there),
            (&["acquire", "--url", url, "--ttl", "1m"], &there),
            (&["release", "--url", url, "it", "Zm9v"], &there),
            (&["renew", "--url", url, "--ttl", "1m", "it", "Zm9v"], &there),
            (&["status", "--url", url], &there),
            (&["inspect", "--url", url, "it"], &there),
            (&["resize", "--url", url, "it", "2"], &there),
            (&["evict", "--url", url, "it", "Zm9v"], &there),
        ],
    );
}

#[test]
fn no_arguments_prints_help_and_exits_with_64() {
    let output = env().run::<&str>([]);
    assert_eq!(output.code(), Some(64));
    assert!(output.stdout.is_empty() && output.stderr.contains("Usage: semafor"), "{output:?}");
}
