#![no_main]

semafor_fuzz::target!("urls");
