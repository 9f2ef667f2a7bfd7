//! Where a command writes its answer: into a value, or onto the stack of Lua.

use redis::Value;

use super::number;

pub(super) trait Answer {
    fn nil(&mut self);
    fn okay(&mut self);
    fn whole(&mut self, number: i64);
    fn bulk(&mut self, text: &[u8]);
    /// An array of so many items. What is written next are its items.
    fn array(&mut self, length: usize);

    fn count(&mut self, number: usize) {
        self.whole(i64::try_from(number).unwrap_or(i64::MAX));
    }

    fn score(&mut self, score: f64) {
        self.bulk(number::write(score).as_bytes());
    }

    fn bulk_or_nil(&mut self, text: Option<&[u8]>) {
        match text {
            Some(text) => self.bulk(text),
            None => self.nil(),
        }
    }
}

/// Writes the answer as redis-rs has it.
#[derive(Default)]
pub(super) struct ValueAnswer {
    value: Option<Value>,
    /// Arrays that are not complete, with how many items they lack.
    open: Vec<(Vec<Value>, usize)>,
}

impl ValueAnswer {
    pub(super) fn into_value(self) -> Value {
        self.value.unwrap_or(Value::Nil)
    }

    fn put(&mut self, mut value: Value) {
        while let Some((items, missing)) = self.open.last_mut() {
            items.push(value);
            *missing -= 1;
            if *missing > 0 {
                return;
            }
            value = Value::Array(std::mem::take(items));
            self.open.pop();
        }
        self.value = Some(value);
    }
}

impl Answer for ValueAnswer {
    fn nil(&mut self) {
        self.put(Value::Nil);
    }

    fn okay(&mut self) {
        self.put(Value::Okay);
    }

    fn whole(&mut self, number: i64) {
        self.put(Value::Int(number));
    }

    fn bulk(&mut self, text: &[u8]) {
        self.put(Value::BulkString(text.to_vec()));
    }

    fn array(&mut self, length: usize) {
        if length == 0 {
            self.put(Value::Array(Vec::new()));
        } else {
            self.open.push((Vec::with_capacity(length), length));
        }
    }
}
