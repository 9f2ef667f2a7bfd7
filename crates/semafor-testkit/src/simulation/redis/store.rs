//! The keys of a server, and the commands that the scripts use.
//!
//! `tests/simulated_commands.rs` plays random commands on this store and on a real server, and compares every answer.

use std::collections::VecDeque;
use std::ops::Deref;
use std::rc::Rc;

use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use redis::Value;

use super::answer::{Answer, ValueAnswer};
use super::number::{self, Text, read, read_whole};
use super::zset::SortedSet;

type Hash = HashMap<Rc<[u8]>, Rc<[u8]>>;

/// Copies of a store share the large ones, until one of them is changed.
#[derive(Clone, Debug)]
enum Content {
    Text(Vec<u8>),
    List(VecDeque<Vec<u8>>),
    Hash(Rc<Hash>),
    Sorted(Rc<SortedSet>),
}

#[derive(Clone, Debug)]
struct Entry {
    /// Its key.
    key: Rc<[u8]>,
    content: Content,
    /// In milliseconds of the server's clock.
    expires: Option<i64>,
}

/// An error of a command, in the words of the server.
pub type Outcome = Result<Value, String>;

/// A word of a command. Scripts pass numbers as well, which stand for their text.
#[derive(Clone, Copy)]
pub(super) enum Word<'a> {
    Text(&'a [u8]),
    Number(f64),
}

/// The text of a word.
enum Bytes<'a> {
    Text(&'a [u8]),
    Number(Text),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            Self::Number(text) => text.as_bytes(),
        }
    }
}

impl Word<'_> {
    fn bytes(&self) -> Bytes<'_> {
        match *self {
            Self::Text(text) => Bytes::Text(text),
            Self::Number(number) => Bytes::Number(number::write(number)),
        }
    }

    fn whole(&self) -> Result<i64, &'static str> {
        match self {
            Self::Number(number) if number.fract() == 0.0 && number.abs() < 1e15 => Ok(*number as i64),
            _ => read_whole(&self.bytes()).ok_or(NOT_WHOLE),
        }
    }

    fn score(&self) -> Option<f64> {
        match self {
            Self::Text(text) => read(text),
            Self::Number(number) => Some(*number).filter(|number| !number.is_nan()),
        }
    }

    fn is(&self, option: &[u8]) -> bool {
        self.bytes().eq_ignore_ascii_case(option)
    }
}

type Words<'a, 'b> = &'a [Word<'b>];
type Done = Result<(), String>;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const SYNTAX: &str = "ERR syntax error";
const NOT_WHOLE: &str = "ERR value is not an integer or out of range";

/// The data of a server.
#[derive(Clone, Debug, Default)]
pub struct Store {
    keys: HashMap<Rc<[u8]>, Entry>,
    /// No key expires before, in milliseconds.
    first_expiry: i64,
    /// In microseconds since the epoch. Stands still while a script runs.
    pub now: i64,
    /// Commands that need memory are refused.
    pub is_out_of_memory: bool,
    /// The script that runs has written. Then it is not stopped half-way for want of memory.
    has_written: bool,
    /// Keys that have changed, expired or gone since this was last taken.
    changed: Vec<Rc<[u8]>>,
    /// Messages that were published since this was last taken: channel and text.
    published: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Store {
    /// An empty one, at a time in microseconds since the epoch.
    pub fn at(now: i64) -> Self {
        Self { now, ..Self::default() }
    }

    /// The same data at another time, without what was to be told.
    pub fn at_time(self, now: i64) -> Self {
        Self { keys: self.keys, first_expiry: self.first_expiry, now, ..Self::default() }
    }

    /// The members of a sorted set; `None` if the key does not exist.
    pub(in crate::simulation) fn sorted_set(&self, key: &str) -> Option<&Rc<SortedSet>> {
        match self.keys.get(key.as_bytes()).map(|entry| &entry.content) {
            Some(Content::Sorted(set)) => Some(set),
            _ => None,
        }
    }

    /// The milliseconds until a key expires; `None` if it has no expiry, or does not exist any more.
    pub(super) fn expires_in(&mut self, key: &str) -> Option<i64> {
        let now = self.milliseconds();
        self.look(key.as_bytes())?.expires.map(|expires| expires - now)
    }

    /// The keys that were changed, or went, since the last call. One key may come several times.
    pub(super) fn take_changed(&mut self) -> Vec<Rc<[u8]>> {
        std::mem::take(&mut self.changed)
    }

    /// The messages since the last call.
    pub fn take_published(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        std::mem::take(&mut self.published)
    }

    /// True if it has no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Its keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let mut keys: Vec<_> = self.keys.keys().map(|key| &**key).collect();
        keys.sort_unstable();
        keys.into_iter()
    }

    /// Removes a key, as a server does that is short of memory.
    pub fn evict(&mut self, key: &[u8]) {
        self.delete(key);
    }

    /// Removes the keys whose time is over, as the server's own cycle does.
    pub fn expire(&mut self) {
        let now = self.milliseconds();
        if self.first_expiry >= now {
            return;
        }
        let mut over: Vec<_> = self
            .keys
            .values()
            .filter(|entry| entry.is_over(now))
            .map(|entry| Rc::clone(&entry.key))
            .collect();
        over.sort_unstable();
        for key in over {
            self.delete(&key);
        }
        self.first_expiry = self.keys.values().filter_map(|entry| entry.expires).min().unwrap_or(i64::MAX);
    }

    fn milliseconds(&self) -> i64 {
        self.now.div_euclid(1_000)
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        let entry = self.keys.remove(key);
        if let Some(entry) = &entry {
            touch(&mut self.changed, &entry.key);
        }
        entry.is_some()
    }

    fn look(&mut self, key: &[u8]) -> Option<&mut Entry> {
        self.drop_if_over(key);
        self.keys.get_mut(key)
    }

    fn drop_if_over(&mut self, key: &[u8]) {
        let now = self.milliseconds();
        if self.first_expiry < now && self.keys.get(key).is_some_and(|entry| entry.is_over(now)) {
            self.delete(key);
        }
    }

    /// A script begins, or a command that is no script.
    pub fn begin(&mut self) {
        self.has_written = false;
    }

    /// Runs a command.
    pub fn run(&mut self, words: &[impl AsRef<[u8]>]) -> Outcome {
        let words: Vec<_> = words.iter().map(|word| Word::Text(word.as_ref())).collect();
        let mut answer = ValueAnswer::default();
        self.answer(&words, &mut answer)?;
        Ok(answer.into_value())
    }

    /// Runs a command. There is no answer if it fails.
    pub(super) fn answer(&mut self, words: Words<'_, '_>, answer: &mut impl Answer) -> Done {
        let Some((name, words)) = words.split_first() else { return Err("ERR empty command".into()) };
        let name = &*name.bytes();
        if name.iter().any(u8::is_ascii_lowercase) {
            let name = name.to_ascii_uppercase();
            return self.command(&name, words, answer);
        }
        self.command(name, words, answer)
    }

    fn command(&mut self, name: &[u8], words: Words<'_, '_>, answer: &mut impl Answer) -> Done {
        let needs_memory = matches!(name, b"SET" | b"ZADD" | b"HSET" | b"HINCRBY" | b"RPUSH");
        if needs_memory && self.is_out_of_memory && !self.has_written {
            return Err(OUT_OF_MEMORY.into());
        }
        let frees_memory = matches!(
            name,
            b"DEL"
                | b"PEXPIRE"
                | b"EXPIRE"
                | b"LPOP"
                | b"HDEL"
                | b"ZREM"
                | b"ZREMRANGEBYSCORE"
                | b"ZREMRANGEBYRANK"
        );
        self.has_written |= needs_memory || frees_memory;
        match name {
            b"TIME" => {
                answer.array(2);
                answer.bulk(number::write(self.now.div_euclid(1_000_000) as f64).as_bytes());
                answer.bulk(number::write(self.now.rem_euclid(1_000_000) as f64).as_bytes());
                Ok(())
            }
            b"GET" => self.get(words, answer),
            b"SET" => self.set(words, answer),
            b"DEL" => {
                let gone =
                    words.iter().map(Word::bytes).filter(|key| self.look(key).is_some() && self.delete(key));
                answer.count(gone.count());
                Ok(())
            }
            b"EXISTS" => {
                answer.count(words.iter().filter(|key| self.look(&key.bytes()).is_some()).count());
                Ok(())
            }
            b"PTTL" => self.pttl(words, answer),
            b"PEXPIRE" => self.expire_after(words, 1, answer),
            b"EXPIRE" => self.expire_after(words, 1_000, answer),
            b"RPUSH" => self.rpush(words, answer),
            b"LPOP" => self.lpop(words, answer),
            b"HGET" => self.hash(words, |hash, rest| {
                answer.bulk_or_nil(
                    rest.first().and_then(|field| hash?.get(&*field.bytes())).map(|value| &**value),
                );
            }),
            b"HEXISTS" => self.hash(words, |hash, rest| {
                let field = rest.first().zip(hash);
                answer.count(usize::from(
                    field.is_some_and(|(field, hash)| hash.contains_key(&*field.bytes())),
                ));
            }),
            b"HLEN" => self.hash(words, |hash, _| answer.count(hash.map_or(0, Hash::len))),
            b"HKEYS" => self.hash(words, |hash, _| {
                let fields = sorted(hash);
                answer.array(fields.len());
                fields.iter().for_each(|(field, _)| answer.bulk(field));
            }),
            b"HGETALL" => self.hash(words, |hash, _| {
                let fields = sorted(hash);
                answer.array(fields.len() * 2);
                for (field, value) in fields {
                    answer.bulk(field);
                    answer.bulk(value);
                }
            }),
            b"HSET" => self.hset(words, answer),
            b"HDEL" => self.hdel(words, answer),
            b"HINCRBY" => self.hincrby(words, answer),
            b"ZADD" => self.zadd(words, answer),
            b"ZREM" => {
                let [key, members @ ..] = words else { return Err(arity(name)) };
                let has_any =
                    |set: &SortedSet| members.iter().any(|member| set.score(&member.bytes()).is_some());
                self.zremove(key, answer, has_any, |set| {
                    members.iter().filter(|member| set.remove(&member.bytes()).is_some()).count()
                })
            }
            b"ZSCORE" => self.sorted(words, |set, rest| {
                match rest.first().and_then(|member| set?.score(&member.bytes())) {
                    Some(score) => answer.score(score),
                    None => answer.nil(),
                }
            }),
            b"ZCARD" => self.sorted(words, |set, _| answer.count(set.map_or(0, SortedSet::len))),
            b"ZCOUNT" => {
                let [key, lowest, highest] = words else { return Err(arity(name)) };
                let limits = limits(lowest, highest)?;
                self.sorted(std::slice::from_ref(key), |set, _| answer.count(within(set, limits).len()))
            }
            b"ZRANGE" => {
                let [key, first, last, options @ ..] = words else { return Err(arity(name)) };
                let with_scores = has_scores(options)?;
                let (first, last) = (first.whole()?, last.whole()?);
                self.sorted(std::slice::from_ref(key), |set, _| {
                    write_members(ranked(set, first, last), with_scores, answer);
                })
            }
            b"ZRANGEBYSCORE" => self.zrangebyscore(words, answer),
            b"ZREMRANGEBYSCORE" => {
                let [key, lowest, highest] = words else { return Err(arity(name)) };
                let limits = limits(lowest, highest)?;
                let has_any = |set: &SortedSet| !within(Some(set), limits).is_empty();
                self.zremove(key, answer, has_any, |set| {
                    let over = within(Some(set), limits).to_vec();
                    over.iter().filter(|(_, member)| set.remove(member).is_some()).count()
                })
            }
            b"ZREMRANGEBYRANK" => {
                let [key, first, last] = words else { return Err(arity(name)) };
                let (first, last) = (first.whole()?, last.whole()?);
                let has_any = |set: &SortedSet| !ranked(Some(set), first, last).is_empty();
                self.zremove(key, answer, has_any, |set| {
                    let over = ranked(Some(set), first, last).to_vec();
                    over.iter().filter(|(_, member)| set.remove(member).is_some()).count()
                })
            }
            b"ZSCAN" => self.sorted(words, |set, _| {
                answer.array(2);
                answer.bulk(b"0");
                write_members(set.map_or(&[], SortedSet::entries), true, answer);
            }),
            b"PUBLISH" => {
                let [channel, text] = words else { return Err(arity(name)) };
                self.published.push((channel.bytes().to_vec(), text.bytes().to_vec()));
                // The number of receivers, which no script looks at.
                answer.count(0);
                Ok(())
            }
            _ => Err(format!("ERR unknown command '{}'", String::from_utf8_lossy(name))),
        }
    }

    // Strings

    fn get(&mut self, words: Words<'_, '_>, answer: &mut impl Answer) -> Done {
        let [key] = words else { return Err(arity(b"get")) };
        match self.look(&key.bytes()).map(|entry| &entry.content) {
            None => answer.nil(),
            Some(Content::Text(text)) => answer.bulk(text),
            Some(_) => return Err(WRONG_TYPE.into()),
        }
        Ok(())
    }

    fn set(&mut self, words: Words<'_, '_>, answer: &mut impl Answer) -> Done {
        let [key, text, options @ ..] = words else { return Err(arity(b"set")) };
        let now = self.milliseconds();
        let mut expires = None;
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let after = |milliseconds| move |text: &Word<'_>| Some(now + text.whole().ok()? * milliseconds);
            match option {
                option if option.is(b"KEEPTTL") => {
                    expires = self.look(&key.bytes()).and_then(|entry| entry.expires);
                }
                option if option.is(b"PX") => expires = options.next().and_then(after(1)),
                option if option.is(b"EX") => expires = options.next().and_then(after(1_000)),
                _ => return Err(SYNTAX.into()),
            }
        }
        if let Some(expires) = expires {
            self.first_expiry = self.first_expiry.min(expires);
        }
        let entry = entry(&mut self.keys, &key.bytes(), || Content::Text(Vec::new()));
        entry.expires = expires;
        match &mut entry.content {
            // It has room already.
            Content::Text(before) => {
                before.clear();
                before.extend_from_slice(&text.bytes());
            }
            content => *content = Content::Text(text.bytes().to_vec()),
        }
        touch(&mut self.changed, &entry.key);
        answer.okay();
        Ok(())
    }

    // Expiry

    fn pttl(&mut self, words: Words<'_, '_>, answer: &mut impl Answer) -> Done {
        let [key] = words else { return Err(arity(b"pttl")) };
        let now = self.milliseconds();
        answer.whole(match self.look(&key.bytes()) {
            None => -2,
            Some(entry) => entry.expires.map_or(-1, |expires| (expires - now).max(0)),
        });
        Ok(())
    }

    fn expire_after(&mut self, words: Words<'_, '_>, milliseconds: i64, answer: &mut impl Answer) -> Done {
        let [key, after] = words else { return Err(arity(b"expire")) };
        let after = after.whole()?.saturating_mul(milliseconds);
        let expires = self.milliseconds().saturating_add(after);
        self.drop_if_over(&key.bytes());
        let Some(entry) = self.keys.get_mut(&*key.bytes()) else {
            answer.count(0);
            return Ok(());
        };
        if after <= 0 {
            self.delete(&key.bytes());
        } else {
            entry.expires = Some(expires);
            self.first_expiry = self.first_expiry.min(expires);
            touch(&mut self.changed, &entry.key);
        }
        answer.count(1);
        Ok(())
    }

    // Lists

    fn rpush(&mut self, words: Words<'_, '_>, answer: &mut impl Answer) -> Done {
        let [key, items @ ..] = words else { return Err(arity(b"rpush")) };
        self.drop_if_over(&key.bytes());
        let entry = entry(&mut self.keys, &key.bytes(), || Content::List(VecDeque::new()));
        let Content::List(list) = &mut entry.content else { return Err(WRONG_TYPE.into()) };
        list.extend(items.iter().map(|item| item.bytes().to_vec()));
        touch(&mut self.changed, &entry.key);
        answer.count(list.len());
        Ok(())
    }

    fn lpop(&mut self, words: Words<'_, '_>, answer: &mut impl Answer) -> Done {
        let [key] = words else { return Err(arity(b"lpop")) };
        self.drop_if_over(&key.bytes());
        let Some(entry) = self.keys.get_mut(&*key.bytes()) else {
            answer.nil();
            return Ok(());
        };
        let Content::List(list) = &mut entry.content else { return Err(WRONG_TYPE.into()) };
        answer.bulk_or_nil(list.pop_front().as_deref());
        touch(&mut self.changed, &entry.key);
        self.drop_if_empty(&key.bytes());
        Ok(())
    }

    // Hashes

    fn hash(&mut self, words: Words<'_, '_>, answer: impl FnOnce(Option<&Hash>, Words<'_, '_>)) -> Done {
        let [key, rest @ ..] = words else { return Err(arity(b"hash")) };
        match self.look(&key.bytes()).map(|entry| &entry.content) {
            None => answer(None, rest),
            Some(Content::Hash(hash)) => answer(Some(hash), rest),
            Some(_) => return Err(WRONG_TYPE.into()),
        }
        Ok(())
    }

    fn hset(&mut self, words: Words<'_, '_>, answer: &mut impl Answer) -> Done {
        let [key, pairs @ ..] = words else { return Err(arity(b"hset")) };
        if pairs.is_empty() || pairs.len() % 2 != 0 {
            return Err(arity(b"hset"));
        }
        self.drop_if_over(&key.bytes());
        let entry = entry(&mut self.keys, &key.bytes(), || Content::Hash(Rc::default()));
        let Content::Hash(hash) = &mut entry.content else { return Err(WRONG_TYPE.into()) };
        let hash = Rc::make_mut(hash);
        let new = pairs.chunks(2).filter(|pair| put(hash, &pair[0].bytes(), &pair[1].bytes())).count();
        touch(&mut self.changed, &entry.key);
        answer.count(new);
        Ok(())
    }

    fn hdel(&mut self, words: Words<'_, '_>, answer: &mut impl Answer) -> Done {
        let [key, fields @ ..] = words else { return Err(arity(b"hdel")) };
        self.drop_if_over(&key.bytes());
        let Some(entry) = self.keys.get_mut(&*key.bytes()) else {
            answer.count(0);
            return Ok(());
        };
        let Content::Hash(hash) = &mut entry.content else { return Err(WRONG_TYPE.into()) };
        let has_any = fields.iter().any(|field| hash.contains_key(&*field.bytes()));
        let remove =
            |hash: &mut Hash| fields.iter().filter(|field| hash.remove(&*field.bytes()).is_some()).count();
        let gone = if has_any { remove(Rc::make_mut(hash)) } else { 0 };
        if gone > 0 {
            touch(&mut self.changed, &entry.key);
            self.drop_if_empty(&key.bytes());
        }
        answer.count(gone);
        Ok(())
    }

    fn hincrby(&mut self, words: Words<'_, '_>, answer: &mut impl Answer) -> Done {
        let [key, field, by] = words else { return Err(arity(b"hincrby")) };
        let by = by.whole()?;
        self.drop_if_over(&key.bytes());
        let entry = entry(&mut self.keys, &key.bytes(), || Content::Hash(Rc::default()));
        let Content::Hash(hash) = &mut entry.content else { return Err(WRONG_TYPE.into()) };
        let before = match hash.get(&*field.bytes()) {
            Some(text) => read_whole(text).ok_or("ERR hash value is not an integer")?,
            None => 0,
        };
        put(Rc::make_mut(hash), &field.bytes(), (before + by).to_string().as_bytes());
        touch(&mut self.changed, &entry.key);
        answer.whole(before + by);
        Ok(())
    }

    // Sorted sets

    fn sorted(
        &mut self,
        words: Words<'_, '_>,
        answer: impl FnOnce(Option<&SortedSet>, Words<'_, '_>),
    ) -> Done {
        let [key, rest @ ..] = words else { return Err(arity(b"zset")) };
        match self.look(&key.bytes()).map(|entry| &entry.content) {
            None => answer(None, rest),
            Some(Content::Sorted(set)) => answer(Some(set), rest),
            Some(_) => return Err(WRONG_TYPE.into()),
        }
        Ok(())
    }

    fn zadd(&mut self, words: Words<'_, '_>, answer: &mut impl Answer) -> Done {
        let [key, rest @ ..] = words else { return Err(arity(b"zadd")) };
        let (mut only_existing, mut only_new, mut counts_changes) = (false, false, false);
        let mut rest = rest;
        while let [option, after @ ..] = rest {
            match option {
                option if option.is(b"XX") => only_existing = true,
                option if option.is(b"NX") => only_new = true,
                option if option.is(b"CH") => counts_changes = true,
                _ => break,
            }
            rest = after;
        }
        if rest.is_empty() || rest.len() % 2 != 0 {
            return Err(SYNTAX.into());
        }
        if rest.chunks(2).any(|pair| pair[0].score().is_none()) {
            return Err("ERR value is not a valid float".into());
        }
        self.drop_if_over(&key.bytes());
        if only_existing && !self.keys.contains_key(&*key.bytes()) {
            answer.count(0);
            return Ok(());
        }
        let entry = entry(&mut self.keys, &key.bytes(), || Content::Sorted(Rc::default()));
        let Content::Sorted(set) = &mut entry.content else { return Err(WRONG_TYPE.into()) };
        let (mut added, mut changed) = (0, 0);
        for pair in rest.chunks(2) {
            let (Some(score), member) = (pair[0].score(), &pair[1].bytes()) else { continue };
            let before = set.score(member);
            let is_wanted = if before.is_some() { !only_new } else { !only_existing };
            if !is_wanted || before == Some(score) {
                continue;
            }
            Rc::make_mut(set).insert(member, score);
            added += usize::from(before.is_none());
            changed += usize::from(before.is_some());
        }
        if added + changed > 0 {
            touch(&mut self.changed, &entry.key);
        }
        self.drop_if_empty(&key.bytes());
        answer.count(if counts_changes { added + changed } else { added });
        Ok(())
    }

    fn zremove(
        &mut self,
        key: &Word<'_>,
        answer: &mut impl Answer,
        has_any: impl FnOnce(&SortedSet) -> bool,
        remove: impl FnOnce(&mut SortedSet) -> usize,
    ) -> Done {
        self.drop_if_over(&key.bytes());
        let Some(entry) = self.keys.get_mut(&*key.bytes()) else {
            answer.count(0);
            return Ok(());
        };
        let Content::Sorted(set) = &mut entry.content else { return Err(WRONG_TYPE.into()) };
        // Does not copy a shared set for nothing.
        let gone = if has_any(set) { remove(Rc::make_mut(set)) } else { 0 };
        if gone > 0 {
            touch(&mut self.changed, &entry.key);
            self.drop_if_empty(&key.bytes());
        }
        answer.count(gone);
        Ok(())
    }

    fn zrangebyscore(&mut self, words: Words<'_, '_>, answer: &mut impl Answer) -> Done {
        let [key, lowest, highest, options @ ..] = words else { return Err(arity(b"zrangebyscore")) };
        let limits = limits(lowest, highest)?;
        let at = options.iter().position(|word| word.is(b"LIMIT"));
        let (options, limit) = options.split_at(at.unwrap_or(options.len()));
        let with_scores = has_scores(options)?;
        let (skip, take) = match limit {
            [] => (0, usize::MAX),
            [_, skip, take] => (
                usize::try_from(skip.whole()?).unwrap_or(usize::MAX),
                usize::try_from(take.whole()?).unwrap_or(usize::MAX),
            ),
            _ => return Err(SYNTAX.into()),
        };
        self.sorted(std::slice::from_ref(key), |set, _| {
            let found = within(set, limits);
            let found = &found[skip.min(found.len())..];
            write_members(&found[..take.min(found.len())], with_scores, answer);
        })
    }

    fn drop_if_empty(&mut self, key: &[u8]) {
        let is_empty = self.keys.get(key).is_some_and(|entry| match &entry.content {
            Content::Text(_) => false,
            Content::List(list) => list.is_empty(),
            Content::Hash(hash) => hash.is_empty(),
            Content::Sorted(set) => set.len() == 0,
        });
        if is_empty {
            self.keys.remove(key);
        }
    }
}

impl Entry {
    fn is_over(&self, now: i64) -> bool {
        self.expires.is_some_and(|expires| expires < now)
    }
}

/// The entry of a key; a new one if there is none.
fn entry<'a>(
    keys: &'a mut HashMap<Rc<[u8]>, Entry>,
    key: &[u8],
    empty: impl FnOnce() -> Content,
) -> &'a mut Entry {
    match keys.entry_ref(key) {
        EntryRef::Occupied(known) => known.into_mut(),
        EntryRef::Vacant(place) => {
            let key: Rc<[u8]> = key.into();
            place.insert_with_key(Rc::clone(&key), Entry { key, content: empty(), expires: None })
        }
    }
}

fn touch(changed: &mut Vec<Rc<[u8]>>, key: &Rc<[u8]>) {
    if changed.last().is_none_or(|last| !Rc::ptr_eq(last, key)) {
        changed.push(Rc::clone(key));
    }
}

/// True if the field is new.
fn put(hash: &mut Hash, field: &[u8], value: &[u8]) -> bool {
    if let Some(known) = hash.get_mut(field) {
        *known = value.into();
        return false;
    }
    hash.insert(field.into(), value.into());
    true
}

fn arity(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name).to_lowercase();
    format!("ERR wrong number of arguments for '{name}' command")
}

/// In an order that does not depend on the hash function, so that a run can be repeated.
fn sorted(hash: Option<&Hash>) -> Vec<(&[u8], &[u8])> {
    let fields = hash.into_iter().flatten().map(|(field, value)| (&**field, &**value));
    let mut fields: Vec<_> = fields.collect();
    fields.sort_unstable();
    fields
}

/// A limit of scores, and whether it belongs to the range.
type Limit = (f64, bool);

fn limits(lowest: &Word<'_>, highest: &Word<'_>) -> Result<(Limit, Limit), String> {
    let limit = |word: &Word<'_>| match &*word.bytes() {
        [b'(', rest @ ..] => Some((read(rest)?, false)),
        _ => Some((word.score()?, true)),
    };
    limit(lowest).zip(limit(highest)).ok_or("ERR min or max is not a float".into())
}

/// Part of a sorted set, in order.
type Members<'a> = &'a [(f64, Rc<[u8]>)];

fn within(set: Option<&SortedSet>, (lowest, highest): (Limit, Limit)) -> Members<'_> {
    let Some(set) = set else { return &[] };
    let from = set.from(lowest.0, lowest.1);
    &from[..SortedSet::up_to(from, highest.0, highest.1)]
}

/// From the first rank up to the last.
fn ranked(set: Option<&SortedSet>, first: i64, last: i64) -> Members<'_> {
    let entries = set.map_or(&[][..], SortedSet::entries);
    let len = i64::try_from(entries.len()).unwrap_or(i64::MAX);
    let absolute = |rank: i64| if rank < 0 { rank + len } else { rank };
    let (first, end) = (absolute(first).max(0), absolute(last).min(len - 1) + 1);
    let (first, end) = (usize::try_from(first).unwrap_or(0), usize::try_from(end).unwrap_or(0));
    entries.get(first..end).unwrap_or_default()
}

fn has_scores(options: Words<'_, '_>) -> Result<bool, String> {
    match options {
        [] => Ok(false),
        [option] if option.is(b"WITHSCORES") => Ok(true),
        _ => Err(SYNTAX.into()),
    }
}

fn write_members(found: Members<'_>, with_scores: bool, answer: &mut impl Answer) {
    answer.array(if with_scores { found.len() * 2 } else { found.len() });
    for (score, member) in found {
        answer.bulk(member);
        if with_scores {
            answer.score(*score);
        }
    }
}
