//! A forked child that continues without `exec` does not keep its parent's lifeline open.
//!
//! In a file of its own, because the child gets copies of everything that the tests of this process have open.

#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;

use semafor::Home;
use semafor::local::{self, Agent, Config};

/// Whether any client has a lifeline in the agent's folder.
fn has_clients(file: &File) -> bool {
    // SAFETY: the struct is plain numbers, so zeros are valid; and the file is open.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = libc::F_WRLCK as _;
        assert_eq!(libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock), 0);
        lock.l_type != libc::F_UNLCK as libc::c_short
    }
}

#[test]
fn forked_child_closes_the_parents_lifeline() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let place = folder.path().join("semafor");
    let agent = Agent::bind(&place).expect("no other agent");
    let agent = std::thread::spawn(move || agent.serve());
    let config = Config::default().directory(&place);
    let clients =
        File::options().read(true).write(true).open(place.join("agent.clients")).expect("it is there");

    let sem = Home::local(config.clone()).named("it").slots(1).build().expect("it can be opened");
    let permit = sem.acquire().blocking().expect("a slot is free");
    assert!(has_clients(&clients));

    let (mut from_child, to_parent) = std::io::pipe().expect("there are pipes");
    let (from_parent, to_child) = std::io::pipe().expect("there are pipes");
    // SAFETY: the child allocates nothing, and only tries locks that another thread may hold.
    let child = unsafe { libc::fork() };
    if child == 0 {
        semafor::after_fork();
        drop(to_child);
        let _ = (&to_parent).write_all(b"!");
        let _ = (&from_parent).read(&mut [0]);
        // SAFETY: the child ends here, and runs no code of its parent.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0, "fork failed");
    from_child.read_exact(&mut [0]).expect("the child goes on");
    assert!(has_clients(&clients), "the parent keeps its own lifeline");

    pollster::block_on(permit.release()).expect("it is held");
    drop(sem);
    let gone = (0..6000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        !has_clients(&clients)
    });
    drop(to_child);
    // SAFETY: it is our child.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    assert!(gone, "the child kept the lifeline");
    pollster::block_on(local::stop(&config, true)).expect("it answers");
    agent.join().expect("it does not panic").expect("it serves to its end");
}
