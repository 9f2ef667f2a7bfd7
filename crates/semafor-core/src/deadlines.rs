//! Deadlines: at most one per key, the earliest first, equal ones in the order they were set.
//!
//! Deadlines that arrive in order are in a linked list: constant time to add, remove and find the first.
//! That is every deadline of a semaphore with one TTL or one acquire timeout. Deadlines out of order go into a tree, in
//! logarithmic time.

use std::collections::BTreeSet;

use crate::Timestamp;

const NONE: u32 = u32::MAX;
/// In place of a predecessor: the node is in the tree, not in the list.
const IN_TREE: u32 = u32::MAX - 1;

struct Node {
    /// `NEVER` if the key has no deadline.
    at: Timestamp,
    order: u64,
    prev: u32,
    next: u32,
}

pub(crate) struct Deadlines {
    nodes: Vec<Node>,
    head: u32,
    tail: u32,
    tree: BTreeSet<(Timestamp, u64, u32)>,
    orders: u64,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { nodes: Vec::new(), head: NONE, tail: NONE, tree: BTreeSet::new(), orders: 0 }
    }
}

impl Deadlines {
    /// Sets the deadline of `key`, in place of any it had. `NEVER` means no deadline.
    pub(crate) fn set(&mut self, key: u32, at: Timestamp) {
        self.remove(key);
        if at == Timestamp::NEVER {
            return;
        }
        self.make_room(key);
        self.orders += 1;
        let is_in_order = self.nodes.get(self.tail as usize).is_none_or(|last| last.at <= at);
        let prev = if is_in_order { self.tail } else { IN_TREE };
        self.nodes[key as usize] = Node { at, order: self.orders, prev, next: NONE };
        if !is_in_order {
            self.tree.insert((at, self.orders, key));
            return;
        }
        match self.tail {
            NONE => self.head = key,
            tail => self.nodes[tail as usize].next = key,
        }
        self.tail = key;
    }

    #[inline]
    fn make_room(&mut self, key: u32) {
        if key as usize >= self.nodes.len() {
            let vacant = || Node { at: Timestamp::NEVER, order: 0, prev: NONE, next: NONE };
            self.nodes.resize_with(key as usize + 1, vacant);
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: u32) {
        if let Some(node) = self.nodes.get(key as usize)
            && node.at != Timestamp::NEVER
        {
            self.unlink(key);
        }
    }

    fn unlink(&mut self, key: u32) {
        let node = &mut self.nodes[key as usize];
        let at = std::mem::replace(&mut node.at, Timestamp::NEVER);
        let (order, prev, next) = (node.order, node.prev, node.next);
        if prev == IN_TREE {
            self.tree.remove(&(at, order, key));
            return;
        }
        match prev {
            NONE => self.head = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => self.nodes[next as usize].prev = prev,
        }
    }

    /// The earliest deadline, its order among equal ones, and its key.
    #[inline]
    fn first(&self) -> (Timestamp, u64, u32) {
        let in_list = match self.nodes.get(self.head as usize) {
            None => (Timestamp::NEVER, 0, NONE),
            Some(node) => (node.at, node.order, self.head),
        };
        match self.tree.first() {
            Some(&in_tree) => in_list.min(in_tree),
            None => in_list,
        }
    }

    #[inline]
    pub(crate) fn next(&self) -> Timestamp {
        self.first().0
    }

    /// Takes out the earliest deadline.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let (at, _, key) = self.first();
        if at == Timestamp::NEVER {
            return None;
        }
        self.unlink(key);
        Some(key)
    }

    /// Frees memory after a burst, once there are no deadlines.
    pub(crate) fn trim(&mut self, keep: usize) {
        if self.head == NONE && self.tree.is_empty() && self.nodes.capacity() > keep {
            self.nodes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        Set(u32, u64),
        Remove(u32),
        Pop,
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            3 => (0..20u32, 0..50u64).prop_map(|(key, at)| Op::Set(key, at)),
            2 => (0..24u32).prop_map(Op::Remove),
            1 => Just(Op::Pop),
        ];
        proptest::collection::vec(op, 0..200)
    }

    proptest! {
        #[test]
        fn earliest_deadline_comes_first_whatever_the_order_of_arrival(ops in ops()) {
            let mut deadlines = Deadlines::default();
            let mut model = BTreeMap::new();
            for (order, op) in ops.into_iter().enumerate() {
                match op {
                    Op::Set(key, at) => {
                        deadlines.set(key, Timestamp::from_nanos(at));
                        model.insert(key, (at, order));
                    }
                    Op::Remove(key) => {
                        deadlines.remove(key);
                        model.remove(&key);
                    }
                    Op::Pop => {
                        let popped = deadlines.pop();
                        let earliest = model.values().min().copied();
                        prop_assert_eq!(popped.and_then(|key| model.remove(&key)), earliest);
                    }
                }
                let next = model.values().min().map_or(Timestamp::NEVER, |(at, _)| Timestamp::from_nanos(*at));
                prop_assert_eq!(deadlines.next(), next);
            }
        }
    }
}
