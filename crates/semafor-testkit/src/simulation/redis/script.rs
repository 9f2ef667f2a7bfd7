//! Runs scripts as Redis does: Lua 5.1 with `redis.call`, `redis.pcall` and `struct`.

use std::cell::RefCell;
use std::rc::Rc;

use redis::Value;

use super::lua::Lua;
use super::store::Store;

thread_local! {
    /// States that no server uses now. A script leaves nothing behind in its state but `KEYS` and `ARGV`, so the next server can
    /// use it, with the scripts that are compiled already.
    static SPARE: RefCell<Vec<Lua>> = const { RefCell::new(Vec::new()) };
}

/// A Lua state over a store.
pub struct Scripts {
    lua: Option<Lua>,
}

impl Scripts {
    /// Scripts that use this store.
    pub fn new(store: &Rc<RefCell<Store>>) -> Self {
        let mut lua = SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(Lua::new);
        lua.set_store(Some(Rc::clone(store)));
        Self { lua: Some(lua) }
    }

    /// Runs a script. The error is in the words of the server.
    pub fn run(
        &mut self,
        code: &'static str,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> Result<Value, String> {
        let Some(lua) = &mut self.lua else { return Err("ERR the server is gone".into()) };
        lua.run(code, keys, arguments)
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        if let Some(mut lua) = self.lua.take() {
            lua.set_store(None);
            // Not while the thread ends.
            let _ = SPARE.try_with(|spare| spare.borrow_mut().push(lua));
        }
    }
}
