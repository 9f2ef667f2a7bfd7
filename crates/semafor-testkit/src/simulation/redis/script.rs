//! Runs scripts as Redis does: Lua 5.1 with `redis.call`, `redis.pcall` and `struct`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use mlua::{Error, Function, Lua, MultiValue, Table, Value as LuaValue, Variadic};
use redis::Value;

use super::number;
use super::store::Store;

/// A Lua state, and the scripts it has compiled.
pub struct Scripts {
    lua: Lua,
    compiled: HashMap<String, Function>,
}

impl Scripts {
    /// # Panics
    ///
    /// If Lua can't be set up.
    pub fn new(store: &Rc<RefCell<Store>>) -> Self {
        let lua = Lua::new();
        set_up(&lua, store).expect("Lua can be set up");
        Self { lua, compiled: HashMap::new() }
    }

    /// Runs a script. The error is in the words of the server.
    pub fn run(&mut self, code: &str, keys: &[String], arguments: &[Vec<u8>]) -> Result<Value, String> {
        let mut run = || -> Result<Value, Error> {
            let script = match self.compiled.get(code) {
                Some(script) => script.clone(),
                None => {
                    let script = self.lua.load(code).set_name("@user_script").into_function()?;
                    self.compiled.insert(code.to_owned(), script.clone());
                    script
                }
            };
            let globals = self.lua.globals();
            globals.raw_set("KEYS", self.strings(keys.iter().map(String::as_bytes))?)?;
            globals.raw_set("ARGV", self.strings(arguments.iter().map(Vec::as_slice))?)?;
            to_redis(script.call::<LuaValue>(())?)
        };
        run().map_err(|error| words_of(&error))
    }

    fn strings<'a>(&self, texts: impl Iterator<Item = &'a [u8]>) -> Result<Table, Error> {
        let table = self.lua.create_table()?;
        for text in texts {
            table.raw_push(self.lua.create_string(text)?)?;
        }
        Ok(table)
    }
}

/// The message of the server, or that of Lua.
fn words_of(error: &Error) -> String {
    match error {
        Error::CallbackError { cause, .. } => words_of(cause),
        Error::RuntimeError(message) => message.clone(),
        other => format!("ERR Error running script: {other}"),
    }
}

fn set_up(lua: &Lua, store: &Rc<RefCell<Store>>) -> Result<(), Error> {
    let redis = lua.create_table()?;
    let of_call = Rc::clone(store);
    redis.set(
        "call",
        lua.create_function(move |lua, words: Variadic<LuaValue>| {
            let outcome = of_call.borrow_mut().run(&command(&words)?);
            to_lua(lua, outcome.map_err(Error::RuntimeError)?)
        })?,
    )?;
    let of_pcall = Rc::clone(store);
    redis.set(
        "pcall",
        lua.create_function(move |lua, words: Variadic<LuaValue>| {
            let outcome = of_pcall.borrow_mut().run(&command(&words)?);
            match outcome {
                Ok(value) => to_lua(lua, value),
                Err(message) => {
                    let error = lua.create_table()?;
                    error.set("err", message)?;
                    Ok(LuaValue::Table(error))
                }
            }
        })?,
    )?;
    let packing = lua.create_table()?;
    packing.set(
        "pack",
        lua.create_function(|lua, (format, numbers): (mlua::LuaString, Variadic<f64>)| {
            check_format(&format.as_bytes(), numbers.len())?;
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            lua.create_string(bytes)
        })?,
    )?;
    packing.set(
        "unpack",
        lua.create_function(|_, (format, text): (mlua::LuaString, mlua::LuaString)| {
            let (format, text) = (format.as_bytes(), text.as_bytes());
            let count = format.len().saturating_sub(1);
            check_format(&format, count)?;
            if text.len() < count * 8 {
                return Err(Error::RuntimeError("data string too short".into()));
            }
            let numbers = text
                .chunks_exact(8)
                .take(count)
                .map(|bytes| LuaValue::Number(f64::from_le_bytes(bytes.try_into().expect("eight bytes"))));
            // And, as the library has it, where the rest begins.
            let after = LuaValue::Number((count * 8 + 1) as f64);
            Ok(MultiValue::from_iter(numbers.chain([after])))
        })?,
    )?;
    lua.globals().set("redis", redis)?;
    lua.globals().set("struct", packing)
}

/// The scripts pack doubles, lowest byte first, and nothing else.
fn check_format(format: &[u8], numbers: usize) -> Result<(), Error> {
    let is_known = format.first() == Some(&b'<') && format[1..].iter().all(|letter| *letter == b'd');
    if is_known && format.len() == numbers + 1 {
        return Ok(());
    }
    let format = String::from_utf8_lossy(format);
    Err(Error::RuntimeError(format!("the simulation has no struct format {format:?} for {numbers} numbers")))
}

fn command(words: &[LuaValue]) -> Result<Vec<Vec<u8>>, Error> {
    let word = |word: &LuaValue| match word {
        LuaValue::String(text) => Ok(text.as_bytes().to_vec()),
        LuaValue::Integer(number) => Ok(number::write(*number as f64).into_bytes()),
        LuaValue::Number(number) => Ok(number::write(*number).into_bytes()),
        _ => {
            Err(Error::RuntimeError("ERR Lua redis lib command arguments must be strings or integers".into()))
        }
    };
    words.iter().map(word).collect()
}

fn to_lua(lua: &Lua, value: Value) -> Result<LuaValue, Error> {
    Ok(match value {
        Value::Nil => LuaValue::Boolean(false),
        Value::Int(number) => LuaValue::Number(number as f64),
        Value::BulkString(text) => LuaValue::String(lua.create_string(text)?),
        Value::Okay => status(lua, "OK")?,
        Value::SimpleString(text) => status(lua, &text)?,
        Value::Array(items) => {
            let table = lua.create_table()?;
            for item in items {
                table.raw_push(to_lua(lua, item)?)?;
            }
            LuaValue::Table(table)
        }
        other => return Err(Error::RuntimeError(format!("the simulation has no {other:?}"))),
    })
}

fn status(lua: &Lua, text: &str) -> Result<LuaValue, Error> {
    let table = lua.create_table()?;
    table.set("ok", text)?;
    Ok(LuaValue::Table(table))
}

fn to_redis(value: LuaValue) -> Result<Value, Error> {
    Ok(match value {
        LuaValue::Nil | LuaValue::Boolean(false) => Value::Nil,
        LuaValue::Boolean(true) => Value::Int(1),
        LuaValue::Integer(number) => Value::Int(number),
        LuaValue::Number(number) => Value::Int(number as i64),
        LuaValue::String(text) => Value::BulkString(text.as_bytes().to_vec()),
        LuaValue::Table(table) => {
            if let Some(message) = table.raw_get::<Option<String>>("err")? {
                return Err(Error::RuntimeError(message));
            }
            if let Some(text) = table.raw_get::<Option<String>>("ok")? {
                return Ok(if text == "OK" { Value::Okay } else { Value::SimpleString(text) });
            }
            let mut items = Vec::new();
            for item in table.sequence_values::<LuaValue>() {
                items.push(to_redis(item?)?);
            }
            Value::Array(items)
        }
        _ => Value::Nil,
    })
}
