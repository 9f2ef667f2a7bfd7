//! Where items come from: anything that can be iterated, or an async function that returns the next item.

/// A source of items: every `IntoIterator`, or an async function wrapped by [`produced`].
pub trait Items: Sized {
    /// The type of an item.
    type Item;

    #[doc(hidden)]
    type Feed: Feed<Item = Self::Item>;

    #[doc(hidden)]
    fn feed(self) -> Self::Feed;
}

#[doc(hidden)]
pub trait Feed {
    type Item;

    #[allow(async_fn_in_trait, reason = "whether it is Send follows from the source")]
    async fn next(&mut self) -> Option<Self::Item>;
}

impl<I: IntoIterator> Items for I {
    type Item = I::Item;
    type Feed = Iterated<I::IntoIter>;

    fn feed(self) -> Self::Feed {
        Iterated(self.into_iter())
    }
}

#[doc(hidden)]
pub struct Iterated<I>(I);

impl<I: Iterator> Feed for Iterated<I> {
    type Item = I::Item;

    async fn next(&mut self) -> Option<I::Item> {
        self.0.next()
    }
}

/// Items from a channel, a stream or a socket: an async function that returns the next item, or `None` at the end.
///
/// It is called when the queue has room for an item. When the pipeline is stopped, the call is dropped where it awaits.
///
/// ```
/// use semafor_pipeline::{Pipeline, produced};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let (send, mut receive) = tokio::sync::mpsc::channel(10);
/// # for n in 0..5 { send.send(n).await.unwrap(); }
/// # drop(send);
/// let items = produced(async move || receive.recv().await);
/// let outcome = Pipeline::new(2).run(items, async |n: u32| Ok::<_, String>(n)).await;
/// assert_eq!(outcome.metrics.done, 5);
/// # });
/// ```
pub fn produced<T, F: AsyncFnMut() -> Option<T>>(next: F) -> Produced<F> {
    Produced(next)
}

/// The items of [`produced`].
#[derive(Clone, Debug)]
#[must_use = "pass it to a pipeline"]
pub struct Produced<F>(F);

impl<T, F: AsyncFnMut() -> Option<T>> Items for Produced<F> {
    type Item = T;
    type Feed = Self;

    fn feed(self) -> Self {
        self
    }
}

impl<T, F: AsyncFnMut() -> Option<T>> Feed for Produced<F> {
    type Item = T;

    async fn next(&mut self) -> Option<T> {
        (self.0)().await
    }
}
