//! A Lua 5.1 state that runs scripts over a store. Scripts call a command some twenty times, and their whole run takes
//! microseconds, so this uses the C interface of Lua: words and answers are not copied on their way.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use hashbrown::HashMap;
use mlua_sys as ffi;
use mlua_sys::lua_State;
use redis::Value;

use super::answer::Answer;
use super::heap::Heap;
use super::number;
use super::store::{Store, Word};

/// Garbage is collected between scripts, once there is so much of it: most of it is still in the cache of the processor.
const MOST_GARBAGE: usize = 1_024 * 1_024;
/// Words of a command that need no memory of their own.
const USUAL_WORDS: usize = 12;
/// Room on the stack that a function of ours always has.
const SLOTS: c_int = 8;

/// What the functions of a state work on. Lua has its address.
#[derive(Default)]
struct Context {
    store: Option<Rc<RefCell<Store>>>,
    /// The error of the last command that failed. It ends the script, unless the script catches it.
    error: Option<String>,
    /// A function of ours has panicked.
    panic: Option<Box<dyn Any + Send>>,
}

/// A state, with the scripts that it has compiled.
pub(super) struct Lua {
    state: *mut lua_State,
    context: *mut Context,
    heap: *mut Heap,
    /// By the address and length of their code.
    compiled: HashMap<(usize, usize), c_int>,
    used_after_collection: usize,
}

impl Lua {
    pub(super) fn new() -> Self {
        let context = Box::into_raw(Box::<Context>::default());
        let heap = Box::into_raw(Box::new(Heap::new()));
        // SAFETY: the heap and the context live until the state is closed, when this is dropped. Without a protected call an
        // error would end the process, but nothing here fails except for want of memory, which ends it as well.
        let state = unsafe {
            let state = ffi::lua_newstate(Heap::allocate, heap.cast());
            assert!(!state.is_null(), "Lua can be set up");
            for open in [ffi::luaopen_base, ffi::luaopen_table, ffi::luaopen_string, ffi::luaopen_math] {
                ffi::lua_pushcclosure(state, open, 0);
                ffi::lua_call(state, 0, 0);
            }
            ffi::lua_getfield_(state, ffi::LUA_GLOBALSINDEX, c"tonumber".as_ptr());
            ffi::lua_pushcclosure(state, to_number, 1);
            ffi::lua_setfield(state, ffi::LUA_GLOBALSINDEX, c"tonumber".as_ptr());
            ffi::lua_createtable(state, 0, 2);
            set_function(state, context, c"call", call);
            set_function(state, context, c"pcall", pcall);
            ffi::lua_setfield(state, ffi::LUA_GLOBALSINDEX, c"redis".as_ptr());
            ffi::lua_createtable(state, 0, 2);
            set_function(state, context, c"pack", pack);
            set_function(state, context, c"unpack", unpack);
            ffi::lua_setfield(state, ffi::LUA_GLOBALSINDEX, c"struct".as_ptr());
            state
        };
        Self { state, context, heap, compiled: HashMap::new(), used_after_collection: 0 }
    }

    /// The store that scripts use from now on.
    pub(super) fn set_store(&mut self, store: Option<Rc<RefCell<Store>>>) {
        self.context().store = store;
    }

    fn context(&mut self) -> &mut Context {
        // SAFETY: it lives as long as this, and no script runs now.
        unsafe { &mut *self.context }
    }

    /// Runs a script. The error is in the words of the server.
    pub(super) fn run(
        &mut self,
        code: &'static str,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> Result<Value, String> {
        let state = self.state;
        // SAFETY: the state is ours, and what is pushed fits: every C function has room for twenty values. Only the protected
        // calls may raise an error.
        let outcome = unsafe {
            ffi::lua_settop(state, 0);
            ffi::lua_pushcclosure(state, traceback, 0);
            match self.push_script(code) {
                Ok(()) => {
                    set_list(state, c"KEYS", keys.iter().map(String::as_bytes));
                    set_list(state, c"ARGV", arguments.iter().map(Vec::as_slice));
                    match ffi::lua_pcall(state, 0, 1, 1) {
                        ffi::LUA_OK => read_reply(state),
                        _ => Err(read_text(state, -1).map_or_else(
                            || "ERR Error running script: its error is not a text".into(),
                            |text| String::from_utf8_lossy(text).into_owned(),
                        )),
                    }
                }
                Err(error) => Err(error),
            }
        };
        let context = self.context();
        if let Some(panic) = context.panic.take() {
            resume_unwind(panic);
        }
        // Without the traceback, as the server has it.
        let outcome = match (outcome, context.error.take()) {
            (Err(text), Some(error)) if text.starts_with(&error) => Err(error),
            (outcome, _) => outcome,
        };
        self.collect_garbage();
        outcome
    }

    /// Pushes the function of a script.
    ///
    /// # Safety
    ///
    /// The stack has room for it.
    unsafe fn push_script(&mut self, code: &'static str) -> Result<(), String> {
        let state = self.state;
        // SAFETY: loading reports its errors, and a reference that was made is valid.
        unsafe {
            let name = (code.as_ptr() as usize, code.len());
            if let Some(reference) = self.compiled.get(&name) {
                ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, *reference);
                return Ok(());
            }
            let status =
                ffi::luaL_loadbuffer(state, code.as_ptr().cast(), code.len(), c"@user_script".as_ptr());
            if status != ffi::LUA_OK {
                let text = read_text(state, -1).unwrap_or_default();
                return Err(format!("ERR Error compiling script: {}", String::from_utf8_lossy(text)));
            }
            ffi::lua_pushvalue(state, -1);
            let reference = ffi::luaL_ref(state, ffi::LUA_REGISTRYINDEX);
            self.compiled.insert(name, reference);
        }
        Ok(())
    }

    fn collect_garbage(&mut self) {
        // SAFETY: no script runs, so nothing else uses the heap or the state.
        unsafe {
            if (*self.heap).used > self.used_after_collection + MOST_GARBAGE {
                ffi::lua_settop(self.state, 0);
                ffi::lua_gc(self.state, ffi::LUA_GCCOLLECT, 0);
                self.used_after_collection = (*self.heap).used;
            }
            // A collection starts it again.
            ffi::lua_gc(self.state, ffi::LUA_GCSTOP, 0);
        }
    }
}

impl Drop for Lua {
    fn drop(&mut self) {
        // SAFETY: they were made by `new`, and the state goes first.
        unsafe {
            ffi::lua_close(self.state);
            drop(Box::from_raw(self.context));
            drop(Box::from_raw(self.heap));
        }
    }
}

/// Sets a field of the table on top of the stack.
///
/// # Safety
///
/// There is a table, and room for two more values.
unsafe fn set_function(
    state: *mut lua_State,
    context: *mut Context,
    name: &CStr,
    function: ffi::lua_CFunction,
) {
    // SAFETY: as above.
    unsafe {
        ffi::lua_pushlightuserdata(state, context.cast());
        ffi::lua_pushcclosure(state, function, 1);
        ffi::lua_setfield(state, -2, name.as_ptr());
    }
}

/// Sets a global variable.
///
/// # Safety
///
/// The stack has room for two more values.
unsafe fn set_list<'a>(state: *mut lua_State, name: &CStr, texts: impl ExactSizeIterator<Item = &'a [u8]>) {
    // SAFETY: as above.
    unsafe {
        ffi::lua_createtable(state, c_int::try_from(texts.len()).unwrap_or(0), 0);
        for (text, place) in texts.zip(1..) {
            push_text(state, text);
            ffi::lua_rawseti_(state, -2, place);
        }
        ffi::lua_setfield(state, ffi::LUA_GLOBALSINDEX, name.as_ptr());
    }
}

/// # Safety
///
/// The stack has room for one more value.
unsafe fn push_text(state: *mut lua_State, text: &[u8]) {
    // SAFETY: Lua copies the text.
    unsafe { ffi::lua_pushlstring_(state, text.as_ptr().cast(), text.len()) }
}

/// The text at a place of the stack, if it is one.
///
/// # Safety
///
/// The text stays there while it is used.
unsafe fn read_text<'a>(state: *mut lua_State, place: c_int) -> Option<&'a [u8]> {
    // SAFETY: the type is checked, because Lua would convert a number where it stands.
    unsafe {
        if ffi::lua_type(state, place) != ffi::LUA_TSTRING {
            return None;
        }
        let mut len = 0;
        let text = ffi::lua_tolstring(state, place, &raw mut len);
        Some(std::slice::from_raw_parts(text.cast(), len))
    }
}

/// Takes the value on top of the stack, as Redis converts the result of a script.
///
/// # Safety
///
/// There is a value.
unsafe fn read_reply(state: *mut lua_State) -> Result<Value, String> {
    // SAFETY: `lua_checkstack` makes the room that is used; raw accesses raise no errors.
    unsafe {
        ffi::lua_checkstack(state, SLOTS);
        let value = match ffi::lua_type(state, -1) {
            ffi::LUA_TBOOLEAN if ffi::lua_toboolean(state, -1) != 0 => Value::Int(1),
            ffi::LUA_TNUMBER => Value::Int(ffi::lua_tonumber(state, -1) as i64),
            ffi::LUA_TSTRING => Value::BulkString(read_text(state, -1).unwrap_or_default().to_vec()),
            ffi::LUA_TTABLE => {
                if let Some(message) = text_field(state, b"err") {
                    return Err(message);
                }
                if let Some(text) = text_field(state, b"ok") {
                    if text == "OK" { Value::Okay } else { Value::SimpleString(text) }
                } else {
                    let mut items = Vec::with_capacity(ffi::lua_objlen(state, -1));
                    for place in 1.. {
                        ffi::lua_rawgeti_(state, -1, place);
                        if ffi::lua_type(state, -1) == ffi::LUA_TNIL {
                            ffi::lua_settop(state, -2);
                            break;
                        }
                        items.push(read_reply(state)?);
                    }
                    Value::Array(items)
                }
            }
            _ => Value::Nil,
        };
        ffi::lua_settop(state, -2);
        Ok(value)
    }
}

/// A field of the table on top of the stack.
///
/// # Safety
///
/// There is a table, and room for one more value.
unsafe fn text_field(state: *mut lua_State, name: &[u8]) -> Option<String> {
    // SAFETY: the text is copied before it is popped.
    unsafe {
        push_text(state, name);
        ffi::lua_rawget_(state, -2);
        let text = read_text(state, -1).map(|text| String::from_utf8_lossy(text).into_owned());
        ffi::lua_settop(state, -2);
        text
    }
}

// Functions for scripts

/// How many results there are on top of the stack, or an error.
type Results = Result<c_int, String>;

/// `redis.call`
unsafe extern "C-unwind" fn call(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the context as first upvalue.
    unsafe { enter(state, run_command) }
}

/// `redis.pcall`
unsafe extern "C-unwind" fn pcall(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the context as first upvalue.
    unsafe {
        enter(state, |state, context| {
            run_command(state, context).or_else(|error| {
                ffi::lua_createtable(state, 0, 1);
                push_text(state, error.as_bytes());
                ffi::lua_setfield(state, -2, c"err".as_ptr());
                Ok(1)
            })
        })
    }
}

/// `struct.pack`
unsafe extern "C-unwind" fn pack(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the context as first upvalue.
    unsafe {
        enter(state, |state, _| {
            let count = ffi::lua_gettop(state) - 1;
            let format = read_text(state, 1).ok_or("struct.pack needs a format")?;
            check_format(format, usize::try_from(count).unwrap_or(0))?;
            let mut bytes = Vec::with_capacity(format.len() * 8);
            for place in 2..2 + count {
                if ffi::lua_isnumber(state, place) == 0 {
                    return Err("struct.pack needs numbers".into());
                }
                bytes.extend_from_slice(&ffi::lua_tonumber(state, place).to_le_bytes());
            }
            push_text(state, &bytes);
            Ok(1)
        })
    }
}

/// `struct.unpack`
unsafe extern "C-unwind" fn unpack(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the context as first upvalue.
    unsafe {
        enter(state, |state, _| {
            let texts = read_text(state, 1).zip(read_text(state, 2));
            let (format, text) = texts.ok_or("struct.unpack needs a format and a text")?;
            let count = format.len().saturating_sub(1);
            check_format(format, count)?;
            let (numbers, _) = text.as_chunks::<8>();
            let numbers = numbers.get(..count).ok_or("data string too short")?;
            let results = c_int::try_from(count + 1).unwrap_or(c_int::MAX);
            if ffi::lua_checkstack(state, results) == 0 {
                return Err("struct.unpack has too many results".into());
            }
            for number in numbers {
                ffi::lua_pushnumber(state, f64::from_le_bytes(*number));
            }
            // And, as the library has it, where the rest begins.
            ffi::lua_pushnumber(state, (count * 8 + 1) as f64);
            Ok(results)
        })
    }
}

/// The scripts pack doubles, lowest byte first, and nothing else.
fn check_format(format: &[u8], numbers: usize) -> Result<(), String> {
    let is_known = format.first() == Some(&b'<') && format[1..].iter().all(|letter| *letter == b'd');
    if is_known && format.len() == numbers + 1 {
        return Ok(());
    }
    let format = String::from_utf8_lossy(format);
    Err(format!("the simulation has no struct format {format:?} for {numbers} numbers"))
}

/// `tonumber`, as quick as its callers expect of it: the function of Lua asks the C library twice, which takes most of the
/// time of some scripts. That function, its first upvalue, does what is not usual.
unsafe extern "C-unwind" fn to_number(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this; there is room for twenty values.
    unsafe {
        let count = ffi::lua_gettop(state);
        if count == 1 {
            let number = match ffi::lua_type(state, 1) {
                ffi::LUA_TNUMBER => return 1,
                ffi::LUA_TSTRING => number::read_plain(read_text(state, 1).unwrap_or_default()),
                _ => None,
            };
            if let Some(number) = number {
                ffi::lua_pushnumber(state, number);
                return 1;
            }
        }
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, count, 1);
        1
    }
}

/// Adds a traceback to an error of a script.
unsafe extern "C-unwind" fn traceback(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this with the error as its only argument.
    unsafe {
        if ffi::lua_type(state, 1) == ffi::LUA_TSTRING {
            ffi::luaL_traceback(state, state, ffi::lua_tolstring(state, 1, std::ptr::null_mut()), 1);
        }
        1
    }
}

/// Runs a function for Lua: its error becomes one of the script, and a panic ends the script.
///
/// # Safety
///
/// Lua calls the function that calls this, and the context is its first upvalue.
unsafe fn enter(
    state: *mut lua_State,
    function: impl FnOnce(*mut lua_State, &mut Context) -> Results,
) -> c_int {
    // SAFETY: a context has one state, and functions of ours do not call each other through Lua, so this is the only reference
    // to it. `lua_error` jumps over this frame; nothing in it is left to drop then.
    unsafe {
        let context = ffi::lua_touserdata(state, ffi::lua_upvalueindex(1)).cast::<Context>();
        match catch_unwind(AssertUnwindSafe(|| function(state, &mut *context))) {
            Ok(Ok(results)) => return results,
            Ok(Err(error)) => {
                push_text(state, error.as_bytes());
                (*context).error = Some(error);
            }
            Err(panic) => {
                push_text(state, b"the simulation has panicked");
                (*context).panic = Some(panic);
            }
        }
        ffi::lua_error(state)
    }
}

/// Runs the command on the stack, and pushes its answer.
fn run_command(state: *mut lua_State, context: &mut Context) -> Results {
    // SAFETY: the words stay on the stack, where Lua does not change them, while they are used. There is room for twenty more.
    unsafe {
        let count = ffi::lua_gettop(state);
        let mut few = [Word::Text(&[]); USUAL_WORDS];
        let mut many = Vec::new();
        let words = match few.get_mut(..usize::try_from(count).unwrap_or(0)) {
            Some(words) => words,
            None => {
                many.resize(usize::try_from(count).unwrap_or(0), Word::Text(&[]));
                &mut many[..]
            }
        };
        for (word, place) in words.iter_mut().zip(1..) {
            *word = match ffi::lua_type(state, place) {
                ffi::LUA_TSTRING => Word::Text(read_text(state, place).unwrap_or_default()),
                ffi::LUA_TNUMBER => Word::Number(ffi::lua_tonumber(state, place)),
                _ => return Err("ERR Lua redis lib command arguments must be strings or integers".into()),
            };
        }
        let store = context.store.as_ref().ok_or("the script has no store")?;
        store.borrow_mut().answer(words, &mut Stack { state, open: [(0, 0); 2], depth: 0 })?;
        Ok(1)
    }
}

/// Writes an answer onto the stack of Lua.
struct Stack {
    state: *mut lua_State,
    /// The arrays that are not complete: how many items they have, and how many they get.
    open: [(c_int, c_int); 2],
    depth: usize,
}

impl Stack {
    /// The value on top of the stack is complete.
    fn done(&mut self) {
        while self.depth > 0 {
            let (items, length) = &mut self.open[self.depth - 1];
            *items += 1;
            // SAFETY: the array is below the value.
            unsafe { ffi::lua_rawseti_(self.state, -2, *items) };
            if items < length {
                return;
            }
            self.depth -= 1;
        }
    }
}

impl Answer for Stack {
    fn nil(&mut self) {
        // SAFETY: there is room for three values: a store nests arrays twice.
        unsafe { ffi::lua_pushboolean(self.state, 0) };
        self.done();
    }

    fn okay(&mut self) {
        // SAFETY: as above, and one more for the text.
        unsafe {
            ffi::lua_createtable(self.state, 0, 1);
            push_text(self.state, b"OK");
            ffi::lua_setfield(self.state, -2, c"ok".as_ptr());
        }
        self.done();
    }

    fn whole(&mut self, number: i64) {
        // SAFETY: as above.
        unsafe { ffi::lua_pushnumber(self.state, number as f64) };
        self.done();
    }

    fn bulk(&mut self, text: &[u8]) {
        // SAFETY: as above.
        unsafe { push_text(self.state, text) };
        self.done();
    }

    fn array(&mut self, length: usize) {
        let length = c_int::try_from(length).unwrap_or(c_int::MAX);
        // SAFETY: as above.
        unsafe { ffi::lua_createtable(self.state, length, 0) };
        if length == 0 {
            return self.done();
        }
        self.open[self.depth] = (0, length);
        self.depth += 1;
    }
}
