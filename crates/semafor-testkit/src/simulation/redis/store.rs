//! The keys of a server, and the commands that the scripts use.
//!
//! `tests/simulated_commands.rs` plays random commands on this store and on a real server, and compares every answer.

use std::collections::{BTreeMap, HashMap, VecDeque};

use redis::Value;

use super::number::{self, read, read_whole};
use super::zset::SortedSet;

#[derive(Clone, Debug, PartialEq)]
enum Content {
    Text(Vec<u8>),
    List(VecDeque<Vec<u8>>),
    Hash(HashMap<Vec<u8>, Vec<u8>>),
    Sorted(SortedSet),
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    content: Content,
    /// In milliseconds of the server's clock.
    expires: Option<i64>,
}

/// An error of a command, in the words of the server.
pub type Outcome = Result<Value, String>;

type Words<'a> = &'a [Vec<u8>];

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const SYNTAX: &str = "ERR syntax error";

/// The data of a server.
#[derive(Clone, Debug, Default)]
pub struct Store {
    keys: BTreeMap<Vec<u8>, Entry>,
    /// In microseconds since the epoch. Stands still while a script runs.
    pub now: i64,
    /// Commands that need memory are refused.
    pub is_out_of_memory: bool,
    /// The script that runs has written. Then it is not stopped half-way for want of memory.
    has_written: bool,
    /// Keys that have changed, expired or gone since this was last taken.
    changed: Vec<Vec<u8>>,
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
        Self { keys: self.keys, now, ..Self::default() }
    }

    /// The members of a sorted set, in order; empty if the key does not exist.
    pub fn sorted_set(&self, key: &str) -> Vec<(String, f64)> {
        match self.keys.get(key.as_bytes()).map(|entry| &entry.content) {
            Some(Content::Sorted(set)) => set
                .iter()
                .map(|(member, score)| (String::from_utf8_lossy(member).into_owned(), score))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The keys that were changed, or went, since the last call.
    pub fn take_changed(&mut self) -> Vec<Vec<u8>> {
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
        self.keys.keys().map(Vec::as_slice)
    }

    /// Removes a key, as a server does that is short of memory.
    pub fn evict(&mut self, key: &[u8]) {
        self.delete(key);
    }

    /// Removes the keys whose time is over, as the server's own cycle does.
    pub fn expire(&mut self) {
        let now = self.milliseconds();
        let is_over = |entry: &Entry| entry.expires.is_some_and(|expires| expires < now);
        let over: Vec<_> =
            self.keys.iter().filter(|(_, entry)| is_over(entry)).map(|(key, _)| key.clone()).collect();
        for key in over {
            self.delete(&key);
        }
    }

    fn milliseconds(&self) -> i64 {
        self.now.div_euclid(1_000)
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        let was_there = self.keys.remove(key).is_some();
        if was_there {
            self.touch(key);
        }
        was_there
    }

    fn touch(&mut self, key: &[u8]) {
        self.changed.push(key.to_vec());
    }

    fn look(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now = self.milliseconds();
        if self.keys.get(key)?.expires.is_some_and(|expires| expires < now) {
            self.delete(key);
            return None;
        }
        self.keys.get_mut(key)
    }

    /// A script begins, or a command that is no script.
    pub fn begin(&mut self) {
        self.has_written = false;
    }

    /// Runs a command.
    pub fn run(&mut self, words: Words<'_>) -> Outcome {
        let Some((name, arguments)) = words.split_first() else { return Err("ERR empty command".into()) };
        let name = String::from_utf8_lossy(name).to_uppercase();
        let needs_memory = ["SET", "ZADD", "HSET", "HINCRBY", "RPUSH"].contains(&&*name);
        if needs_memory && self.is_out_of_memory && !self.has_written {
            return Err(OUT_OF_MEMORY.into());
        }
        let frees_memory =
            ["DEL", "PEXPIRE", "EXPIRE", "LPOP", "HDEL", "ZREM", "ZREMRANGEBYSCORE", "ZREMRANGEBYRANK"];
        self.has_written |= needs_memory || frees_memory.contains(&&*name);
        match &*name {
            "TIME" => Ok(Value::Array(
                [self.now.div_euclid(1_000_000), self.now.rem_euclid(1_000_000)]
                    .map(|number| bulk(number.to_string().as_bytes()))
                    .to_vec(),
            )),
            "GET" => self.get(arguments),
            "SET" => self.set(arguments),
            "DEL" => {
                Ok(count(arguments.iter().filter(|key| self.look(key).is_some() && self.delete(key)).count()))
            }
            "EXISTS" => Ok(count(arguments.iter().filter(|key| self.look(key).is_some()).count())),
            "PTTL" => self.pttl(arguments),
            "PEXPIRE" => self.pexpire(arguments),
            "EXPIRE" => self.expire_seconds(arguments),
            "RPUSH" => self.rpush(arguments),
            "LPOP" => self.lpop(arguments),
            "HGET" => self.hash(arguments, |hash, rest| {
                rest.first().and_then(|field| hash.get(field)).map_or(Value::Nil, |value| bulk(value))
            }),
            "HEXISTS" => self.hash(arguments, |hash, rest| {
                count(usize::from(rest.first().is_some_and(|field| hash.contains_key(field))))
            }),
            "HLEN" => self.hash(arguments, |hash, _| count(hash.len())),
            "HKEYS" => self.hash(arguments, |hash, _| {
                Value::Array(sorted(hash).map(|(field, _)| bulk(field)).collect())
            }),
            "HGETALL" => self.hash(arguments, |hash, _| {
                Value::Array(sorted(hash).flat_map(|(field, value)| [bulk(field), bulk(value)]).collect())
            }),
            "HSET" => self.hset(arguments),
            "HDEL" => self.hdel(arguments),
            "HINCRBY" => self.hincrby(arguments),
            "ZADD" => self.zadd(arguments),
            "ZREM" => self.zrem(arguments),
            "ZSCORE" => self.sorted(arguments, |set, rest| {
                rest.first()
                    .and_then(|member| set.score(member))
                    .map_or(Value::Nil, |score| bulk(number::write(score).as_bytes()))
            }),
            "ZCARD" => self.sorted(arguments, |set, _| count(set.len())),
            "ZCOUNT" => self.zcount(arguments),
            "ZRANGE" => self.zrange(arguments),
            "ZRANGEBYSCORE" => self.zrangebyscore(arguments),
            "ZREMRANGEBYSCORE" => self.zremrangebyscore(arguments),
            "ZREMRANGEBYRANK" => self.zremrangebyrank(arguments),
            "ZSCAN" => self.sorted(arguments, |set, _| {
                let all = set
                    .iter()
                    .flat_map(|(member, score)| [bulk(member), bulk(number::write(score).as_bytes())]);
                Value::Array(vec![bulk(b"0"), Value::Array(all.collect())])
            }),
            "PUBLISH" => {
                let [channel, text] = arguments else { return Err(arity(&name)) };
                self.published.push((channel.clone(), text.clone()));
                // The number of receivers, which no script looks at.
                Ok(Value::Int(0))
            }
            _ => Err(format!("ERR unknown command '{name}'")),
        }
    }

    // Strings

    fn get(&mut self, words: Words<'_>) -> Outcome {
        let [key] = words else { return Err(arity("get")) };
        match self.look(key) {
            None => Ok(Value::Nil),
            Some(Entry { content: Content::Text(text), .. }) => Ok(bulk(text)),
            Some(_) => Err(WRONG_TYPE.into()),
        }
    }

    fn set(&mut self, words: Words<'_>) -> Outcome {
        let [key, text, options @ ..] = words else { return Err(arity("set")) };
        let now = self.milliseconds();
        let mut expires = None;
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match &*String::from_utf8_lossy(option).to_uppercase() {
                "KEEPTTL" => expires = self.look(key).and_then(|entry| entry.expires),
                "PX" => expires = options.next().and_then(|text| read_whole(text)).map(|after| now + after),
                "EX" => {
                    expires =
                        options.next().and_then(|text| read_whole(text)).map(|after| now + after * 1_000);
                }
                _ => return Err(SYNTAX.into()),
            }
        }
        self.keys.insert(key.clone(), Entry { content: Content::Text(text.clone()), expires });
        self.touch(key);
        Ok(Value::Okay)
    }

    // Expiry

    fn pttl(&mut self, words: Words<'_>) -> Outcome {
        let [key] = words else { return Err(arity("pttl")) };
        let now = self.milliseconds();
        Ok(Value::Int(match self.look(key) {
            None => -2,
            Some(entry) => entry.expires.map_or(-1, |expires| (expires - now).max(0)),
        }))
    }

    fn pexpire(&mut self, words: Words<'_>) -> Outcome {
        let [key, after] = words else { return Err(arity("pexpire")) };
        let after = read_whole(after).ok_or("ERR value is not an integer or out of range")?;
        self.expire_after(key, after)
    }

    fn expire_seconds(&mut self, words: Words<'_>) -> Outcome {
        let [key, after] = words else { return Err(arity("expire")) };
        let after = read_whole(after).ok_or("ERR value is not an integer or out of range")?;
        self.expire_after(key, after.saturating_mul(1_000))
    }

    fn expire_after(&mut self, key: &[u8], after: i64) -> Outcome {
        let expires = self.milliseconds().saturating_add(after);
        let Some(entry) = self.look(key) else { return Ok(Value::Int(0)) };
        if after <= 0 {
            self.delete(key);
            return Ok(Value::Int(1));
        }
        entry.expires = Some(expires);
        self.touch(key);
        Ok(Value::Int(1))
    }

    // Lists

    fn rpush(&mut self, words: Words<'_>) -> Outcome {
        let [key, items @ ..] = words else { return Err(arity("rpush")) };
        let empty = || Content::List(VecDeque::new());
        let Content::List(list) = self.content(key, empty) else { return Err(WRONG_TYPE.into()) };
        list.extend(items.iter().cloned());
        let len = list.len();
        self.touch(key);
        Ok(count(len))
    }

    fn lpop(&mut self, words: Words<'_>) -> Outcome {
        let [key] = words else { return Err(arity("lpop")) };
        let popped = match self.look(key).map(|entry| &mut entry.content) {
            None => return Ok(Value::Nil),
            Some(Content::List(list)) => list.pop_front(),
            Some(_) => return Err(WRONG_TYPE.into()),
        };
        self.touch(key);
        self.drop_if_empty(key);
        Ok(popped.map_or(Value::Nil, |item| bulk(&item)))
    }

    // Hashes

    fn hash(
        &mut self,
        words: Words<'_>,
        answer: impl FnOnce(&HashMap<Vec<u8>, Vec<u8>>, Words<'_>) -> Value,
    ) -> Outcome {
        let [key, rest @ ..] = words else { return Err(arity("hash")) };
        match self.look(key).map(|entry| &entry.content) {
            None => Ok(answer(&HashMap::new(), rest)),
            Some(Content::Hash(hash)) => Ok(answer(hash, rest)),
            Some(_) => Err(WRONG_TYPE.into()),
        }
    }

    fn hset(&mut self, words: Words<'_>) -> Outcome {
        let [key, pairs @ ..] = words else { return Err(arity("hset")) };
        if pairs.is_empty() || pairs.len() % 2 != 0 {
            return Err(arity("hset"));
        }
        let empty = || Content::Hash(HashMap::new());
        let Content::Hash(hash) = self.content(key, empty) else { return Err(WRONG_TYPE.into()) };
        let new =
            pairs.chunks(2).filter(|pair| hash.insert(pair[0].clone(), pair[1].clone()).is_none()).count();
        self.touch(key);
        Ok(count(new))
    }

    fn hdel(&mut self, words: Words<'_>) -> Outcome {
        let [key, fields @ ..] = words else { return Err(arity("hdel")) };
        let gone = match self.look(key).map(|entry| &mut entry.content) {
            None => 0,
            Some(Content::Hash(hash)) => fields.iter().filter(|field| hash.remove(*field).is_some()).count(),
            Some(_) => return Err(WRONG_TYPE.into()),
        };
        if gone > 0 {
            self.touch(key);
            self.drop_if_empty(key);
        }
        Ok(count(gone))
    }

    fn hincrby(&mut self, words: Words<'_>) -> Outcome {
        let [key, field, by] = words else { return Err(arity("hincrby")) };
        let by = read_whole(by).ok_or("ERR value is not an integer or out of range")?;
        let empty = || Content::Hash(HashMap::new());
        let Content::Hash(hash) = self.content(key, empty) else { return Err(WRONG_TYPE.into()) };
        let before = match hash.get(field) {
            Some(text) => read_whole(text).ok_or("ERR hash value is not an integer")?,
            None => 0,
        };
        hash.insert(field.clone(), (before + by).to_string().into_bytes());
        self.touch(key);
        Ok(Value::Int(before + by))
    }

    // Sorted sets

    fn sorted(&mut self, words: Words<'_>, answer: impl FnOnce(&SortedSet, Words<'_>) -> Value) -> Outcome {
        let [key, rest @ ..] = words else { return Err(arity("zset")) };
        match self.look(key).map(|entry| &entry.content) {
            None => Ok(answer(&SortedSet::default(), rest)),
            Some(Content::Sorted(set)) => Ok(answer(set, rest)),
            Some(_) => Err(WRONG_TYPE.into()),
        }
    }

    fn zadd(&mut self, words: Words<'_>) -> Outcome {
        let [key, rest @ ..] = words else { return Err(arity("zadd")) };
        let (mut only_existing, mut only_new, mut counts_changes) = (false, false, false);
        let mut rest = rest;
        while let [option, after @ ..] = rest {
            match &*String::from_utf8_lossy(option).to_uppercase() {
                "XX" => only_existing = true,
                "NX" => only_new = true,
                "CH" => counts_changes = true,
                _ => break,
            }
            rest = after;
        }
        if rest.is_empty() || rest.len() % 2 != 0 {
            return Err(SYNTAX.into());
        }
        let pairs: Option<Vec<_>> = rest.chunks(2).map(|pair| Some((read(&pair[0])?, &pair[1]))).collect();
        let pairs = pairs.ok_or("ERR value is not a valid float")?;
        match self.look(key).map(|entry| &entry.content) {
            None if only_existing => return Ok(Value::Int(0)),
            None | Some(Content::Sorted(_)) => {}
            Some(_) => return Err(WRONG_TYPE.into()),
        }
        let empty = || Content::Sorted(SortedSet::default());
        let Content::Sorted(set) = self.content(key, empty) else { return Err(WRONG_TYPE.into()) };
        let (mut added, mut changed) = (0, 0);
        for (score, member) in pairs {
            let before = set.score(member);
            let is_wanted = if before.is_some() { !only_new } else { !only_existing };
            if !is_wanted {
                continue;
            }
            set.insert(member, score);
            added += usize::from(before.is_none());
            changed += usize::from(before.is_some_and(|before| before != score));
        }
        if added + changed > 0 {
            self.touch(key);
        }
        self.drop_if_empty(key);
        Ok(count(if counts_changes { added + changed } else { added }))
    }

    fn zrem(&mut self, words: Words<'_>) -> Outcome {
        let [key, members @ ..] = words else { return Err(arity("zrem")) };
        self.zremove(key, |set| members.iter().filter(|member| set.remove(member).is_some()).count())
    }

    fn zremove(&mut self, key: &[u8], remove: impl FnOnce(&mut SortedSet) -> usize) -> Outcome {
        let gone = match self.look(key).map(|entry| &mut entry.content) {
            None => 0,
            Some(Content::Sorted(set)) => remove(set),
            Some(_) => return Err(WRONG_TYPE.into()),
        };
        if gone > 0 {
            self.touch(key);
            self.drop_if_empty(key);
        }
        Ok(count(gone))
    }

    fn zcount(&mut self, words: Words<'_>) -> Outcome {
        let [key, lowest, highest] = words else { return Err(arity("zcount")) };
        let (lowest, highest) = limits(lowest, highest)?;
        self.sorted(std::slice::from_ref(key), |set, _| count(within(set, lowest, highest).count()))
    }

    fn zrange(&mut self, words: Words<'_>) -> Outcome {
        let [key, first, last, options @ ..] = words else { return Err(arity("zrange")) };
        let with_scores = has_scores(options)?;
        let whole =
            |text: &[u8]| read_whole(text).ok_or("ERR value is not an integer or out of range".to_owned());
        let (first, last) = (whole(first)?, whole(last)?);
        self.sorted(std::slice::from_ref(key), |set, _| {
            let (first, last) = ranks(first, last, set.len());
            let found = set.iter().skip(first).take(last.saturating_sub(first));
            members(found, with_scores)
        })
    }

    fn zrangebyscore(&mut self, words: Words<'_>) -> Outcome {
        let [key, lowest, highest, options @ ..] = words else { return Err(arity("zrangebyscore")) };
        let (lowest, highest) = limits(lowest, highest)?;
        let is_limit = |word: &Vec<u8>| word.eq_ignore_ascii_case(b"LIMIT");
        let at = options.iter().position(is_limit);
        let (options, limit) = options.split_at(at.unwrap_or(options.len()));
        let with_scores = has_scores(options)?;
        let (skip, take) = match limit {
            [] => (0, usize::MAX),
            [_, skip, take] => {
                let whole = |text: &[u8]| {
                    read_whole(text).ok_or("ERR value is not an integer or out of range".to_owned())
                };
                (
                    usize::try_from(whole(skip)?).unwrap_or(usize::MAX),
                    usize::try_from(whole(take)?).unwrap_or(usize::MAX),
                )
            }
            _ => return Err(SYNTAX.into()),
        };
        self.sorted(std::slice::from_ref(key), |set, _| {
            members(within(set, lowest, highest).skip(skip).take(take), with_scores)
        })
    }

    fn zremrangebyscore(&mut self, words: Words<'_>) -> Outcome {
        let [key, lowest, highest] = words else { return Err(arity("zremrangebyscore")) };
        let (lowest, highest) = limits(lowest, highest)?;
        self.zremove(key, |set| {
            let found: Vec<_> = within(set, lowest, highest).map(|(member, _)| member.to_vec()).collect();
            found.iter().filter(|member| set.remove(member).is_some()).count()
        })
    }

    fn zremrangebyrank(&mut self, words: Words<'_>) -> Outcome {
        let [key, first, last] = words else { return Err(arity("zremrangebyrank")) };
        let whole =
            |text: &[u8]| read_whole(text).ok_or("ERR value is not an integer or out of range".to_owned());
        let (first, last) = (whole(first)?, whole(last)?);
        self.zremove(key, |set| {
            let (first, last) = ranks(first, last, set.len());
            let found = set.iter().skip(first).take(last.saturating_sub(first));
            let found: Vec<_> = found.map(|(member, _)| member.to_vec()).collect();
            found.iter().filter(|member| set.remove(member).is_some()).count()
        })
    }

    // Helpers

    fn content(&mut self, key: &[u8], empty: impl FnOnce() -> Content) -> &mut Content {
        // Removes it if its time is over.
        let _ = self.look(key);
        &mut self
            .keys
            .entry(key.to_vec())
            .or_insert_with(|| Entry { content: empty(), expires: None })
            .content
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

fn bulk(text: &[u8]) -> Value {
    Value::BulkString(text.to_vec())
}

fn count(number: usize) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn arity(name: &str) -> String {
    format!("ERR wrong number of arguments for '{}' command", name.to_lowercase())
}

/// In an order that does not depend on the hash function, so that a run can be repeated.
fn sorted(hash: &HashMap<Vec<u8>, Vec<u8>>) -> impl Iterator<Item = (&Vec<u8>, &Vec<u8>)> {
    let mut fields: Vec<_> = hash.iter().collect();
    fields.sort_unstable();
    fields.into_iter()
}

/// A limit of scores, and whether it belongs to the range.
type Limit = (f64, bool);

fn limits(lowest: &[u8], highest: &[u8]) -> Result<(Limit, Limit), String> {
    let limit = |text: &[u8]| match text {
        [b'(', rest @ ..] => Some((read(rest)?, false)),
        text => Some((read(text)?, true)),
    };
    limit(lowest).zip(limit(highest)).ok_or("ERR min or max is not a float".into())
}

fn within(set: &SortedSet, lowest: Limit, highest: Limit) -> impl Iterator<Item = (&[u8], f64)> {
    let from = set.at_least(lowest.0).skip_while(move |(_, score)| !lowest.1 && *score == lowest.0);
    from.take_while(move |(_, score)| *score < highest.0 || highest.1 && *score == highest.0)
}

/// From the first rank up to, but not with, the last.
fn ranks(first: i64, last: i64, len: usize) -> (usize, usize) {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let absolute = |rank: i64| if rank < 0 { rank + len } else { rank };
    let (first, last) = (absolute(first).max(0), absolute(last).min(len - 1) + 1);
    (usize::try_from(first).unwrap_or(0), usize::try_from(last).unwrap_or(0))
}

fn has_scores(options: Words<'_>) -> Result<bool, String> {
    match options {
        [] => Ok(false),
        [option] if option.eq_ignore_ascii_case(b"WITHSCORES") => Ok(true),
        _ => Err(SYNTAX.into()),
    }
}

fn members<'a>(found: impl Iterator<Item = (&'a [u8], f64)>, with_scores: bool) -> Value {
    let mut all = Vec::new();
    for (member, score) in found {
        all.push(bulk(member));
        if with_scores {
            all.push(bulk(number::write(score).as_bytes()));
        }
    }
    Value::Array(all)
}
