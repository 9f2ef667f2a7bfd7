//! Memory for a Lua state. Scripts create and drop many small objects of few sizes, and one thread uses them.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::ffi::c_void;
use std::ptr::null_mut;

/// Sizes are rounded up to a multiple of it, which is also the alignment.
const STEP: usize = 16;
/// Larger blocks come from the allocator of the program.
const LARGEST: usize = 512;
/// Small blocks are cut from chunks of that size, and go back to lists of free blocks.
const CHUNK: usize = 64 * 1_024;

/// Blocks of one size that are free. Each begins with the address of the next.
type FreeList = *mut *mut c_void;

pub(super) struct Heap {
    free: [FreeList; LARGEST / STEP + 1],
    /// What is left of the newest chunk.
    rest: *mut u8,
    left: usize,
    chunks: Vec<*mut u8>,
    /// Bytes in use.
    pub(super) used: usize,
}

impl Heap {
    pub(super) fn new() -> Self {
        Self {
            free: [null_mut(); LARGEST / STEP + 1],
            rest: null_mut(),
            left: 0,
            chunks: Vec::new(),
            used: 0,
        }
    }

    /// The function that Lua calls for memory; `heap` is the heap of its state.
    ///
    /// # Safety
    ///
    /// As `lua_Alloc` has it: `block` is null, or a block of `before` bytes from the same heap.
    pub(super) unsafe extern "C" fn allocate(
        heap: *mut c_void,
        block: *mut c_void,
        before: usize,
        size: usize,
    ) -> *mut c_void {
        // SAFETY: the state was created with a pointer to its heap, which outlives it. Lua does not call this while a
        // reference of another call exists.
        let heap = unsafe { &mut *heap.cast::<Self>() };
        let before = if block.is_null() { 0 } else { before };
        heap.used = heap.used.wrapping_add(size).wrapping_sub(before);
        // SAFETY: Lua gives the block back with the size that it was made with.
        unsafe {
            match (before, size) {
                (0, 0) => null_mut(),
                (0, size) => heap.take(size),
                (before, 0) => {
                    heap.give_back(block, before);
                    null_mut()
                }
                (before, size) if before > LARGEST && size > LARGEST => {
                    check(realloc(block.cast(), large(before), size), large(size))
                }
                (before, size) if class(before) == class(size) => block,
                (before, size) => {
                    let moved = heap.take(size);
                    block.cast::<u8>().copy_to_nonoverlapping(moved.cast(), before.min(size));
                    heap.give_back(block, before);
                    moved
                }
            }
        }
    }

    #[inline]
    unsafe fn take(&mut self, size: usize) -> *mut c_void {
        if size > LARGEST {
            // SAFETY: the size is not 0.
            return unsafe { check(alloc(large(size)), large(size)) };
        }
        let list = &mut self.free[class(size)];
        if !list.is_null() {
            let block = *list;
            // SAFETY: a free block begins with the address of the next one.
            *list = unsafe { (*block).cast() };
            return block.cast();
        }
        let size = class(size) * STEP;
        if self.left < size {
            // SAFETY: the size of a chunk is not 0.
            self.rest = unsafe { check(alloc(CHUNK_LAYOUT), CHUNK_LAYOUT).cast() };
            self.left = CHUNK;
            self.chunks.push(self.rest);
        }
        let block = self.rest;
        // SAFETY: the chunk has that many bytes left.
        self.rest = unsafe { block.add(size) };
        self.left -= size;
        block.cast()
    }

    #[inline]
    unsafe fn give_back(&mut self, block: *mut c_void, size: usize) {
        if size > LARGEST {
            // SAFETY: large blocks are made with that layout.
            return unsafe { dealloc(block.cast(), large(size)) };
        }
        let list = &mut self.free[class(size)];
        let block: FreeList = block.cast();
        // SAFETY: a block has room for an address, and is aligned for one.
        unsafe { *block = (*list).cast() };
        *list = block;
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        for chunk in &self.chunks {
            // SAFETY: chunks are made with that layout; the state that used them is closed.
            unsafe { dealloc(*chunk, CHUNK_LAYOUT) };
        }
    }
}

const CHUNK_LAYOUT: Layout = match Layout::from_size_align(CHUNK, STEP) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

/// Blocks of one class have one size.
fn class(size: usize) -> usize {
    (size + (STEP - 1)) >> STEP.trailing_zeros()
}

fn large(size: usize) -> Layout {
    Layout::from_size_align(size, STEP).expect("Lua asks for less than half of the address space")
}

fn check(block: *mut u8, layout: Layout) -> *mut c_void {
    if block.is_null() {
        handle_alloc_error(layout);
    }
    block.cast()
}
