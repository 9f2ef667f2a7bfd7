//! The picture in the README. `cargo xtask picture` writes it.

use std::process::Command;
use std::time::Duration;

use semafor_testkit::redis::{RedisServer, eventually};
use semafor_testkit::terminal::{Screen, Terminal, svg};

use super::crowd::Crowd;

/// A day at a company that has videos and a database.
fn bustle(crowd: &mut Crowd) {
    for (name, slots, held) in [
        ("db-migrations", 1, 1),
        ("nightly-backup", 2, 1),
        ("gpu", 8, 7),
        ("geocoder-api", 10, 3),
        ("report-export", 6, 5),
        ("s3-upload", 32, 21),
        ("invoice-run", 1, 1),
        ("vacuum", 2, 1),
        ("crawl:example.org", 4, 1),
        ("pdf-render", 24, 2),
    ] {
        crowd.fill(name, slots, held);
    }
    for film in ["dune", "metropolis", "nosferatu", "solaris"] {
        crowd.hold("encode-4k", 4, film, &encode(film));
    }
    for film in ["stalker", "vertigo", "m", "playtime", "alphaville"] {
        crowd.queue("encode-4k", 4, film, &encode(film));
    }
    crowd.queue("db-migrations", 1, "release-2.14", "./migrate up");
    crowd.take_turns("thumbnails", 16, 14, Duration::from_millis(12));
    crowd.take_turns("mail", 5, 9, Duration::from_millis(35));
    crowd.take_turns("search-index", 3, 4, Duration::from_millis(240));
    crowd.take_turns("webhooks", 12, 7, Duration::from_millis(90));
}

fn encode(film: &str) -> String {
    format!("ffmpeg -i /films/{film}.mov -vf scale=3840:-2 /films/4k/{film}.mp4")
}

#[test]
fn a_picture_can_be_taken() {
    let server = RedisServer::start();
    let mut crowd = Crowd::at(&server.url());
    bustle(&mut crowd);
    let before = crowd.grants();
    eventually("they have taken some turns", || (crowd.grants() > before + 2_000).then_some(()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_semafor"));
    command.arg("top").env("SEMAFOR_URL", server.url()).env_remove("NO_COLOR");
    let terminal = Terminal::spawn(command, 26, 100);
    let settled = |screen: &Screen| screen.line_with("mail").is_some_and(|line| !line.contains('–'));
    let list = svg(&terminal.wait_until("there are rates", settled));
    assert!(list.contains("thumbnails") && list.contains("encode-4k"));

    terminal.type_in("/enc\r\r");
    let inside = svg(&terminal.wait_until("one is looked into", |screen| screen.contains("alphaville")));
    if let Ok(folder) = std::env::var("SEMAFOR_PICTURES") {
        std::fs::write(format!("{folder}/top.svg"), list).expect("it can be written");
        std::fs::write(format!("{folder}/top-inside.svg"), inside).expect("it can be written");
    }
}
