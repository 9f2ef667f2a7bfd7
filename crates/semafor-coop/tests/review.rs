use std::time::Instant;
use semafor_coop::*;

#[test]
fn stuck_drops_permit() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(1).await?;
        let held = sem.clone();
        let t = ctx.spawn(async move |ctx: Ctx| {
            let _p = ctx.permit(&held).await?;
            std::future::pending::<()>().await;
            Ok(())
        }).await?;
        assert!(matches!(ctx.wait(&t).await, Err(Error::NotAnEffect)));
        assert_eq!(sem.available(), 1);
        Ok(())
    });
    outcome.result.unwrap();
}

#[test]
fn heavy_after_leak() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let sem = ctx.create_semaphore(2).await?;
        let s = sem.clone();
        let leak = ctx.spawn(async move |ctx: Ctx| ctx.acquire(&s).await).await?;
        ctx.wait(&leak).await?;
        ctx.acquire(&sem).await?;
        let s = sem.clone();
        let heavy = ctx.spawn(async move |ctx: Ctx| ctx.perform(AcquireSemaphore(&s).weight(2)).await).await?;
        ctx.delay(1.0).await?;
        ctx.release(&sem).await?;
        let ticker = ctx.spawn(async |ctx: Ctx| { for _ in 0..1000 { ctx.delay(1.0).await?; } Ok(()) }).await?;
        let e = ctx.wait(&heavy).await;
        ctx.cancel(&ticker).await?;
        assert_eq!(ctx.now().as_secs(), 1);
        e
    });
    assert!(matches!(outcome.result, Err(Error::Deadlock(_))), "{:?}", outcome.result);
}

#[test]
fn reverse_chain() {
    let start = Instant::now();
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let mut task = ctx.spawn(async move |ctx: Ctx| { for _ in 0..5 { ctx.delay(1.0).await?; } Ok(()) }).await?;
        for _ in 0..20_000 {
            let next = task;
            task = ctx.spawn(async move |ctx: Ctx| ctx.wait(&next).await).await?;
        }
        ctx.wait(&task).await
    });
    outcome.result.unwrap();
    eprintln!("reverse chain {:?}", start.elapsed());
}

#[test]
fn daemon_in_vain() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let promise = ctx.promise::<()>().await?;
        let future = promise.future();
        drop(promise);
        ctx.perform(Spawn::new(async move |ctx: Ctx| ctx.wait(future).await).daemon()).await?;
        ctx.delay(1.0).await
    });
    outcome.result.unwrap();
    assert!(outcome.report.deadlocks.is_empty(), "{:?}", outcome.report.deadlocks);
}
#[test]
fn join_deadlock() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let a = ctx.create_semaphore(1).await?;
        ctx.acquire(&a).await?;
        let mut x = Box::pin(ctx.acquire(&a));
        let mut y = Box::pin(ctx.acquire(&a));
        let mut rs = vec![];
        std::future::poll_fn(|cx| {
            if rs.is_empty() { if let std::task::Poll::Ready(r) = x.as_mut().poll(cx) { rs.push(format!("{r:?}")); } }
            y.as_mut().poll(cx).map(|r| rs.push(format!("{r:?}")))
        }).await;
        eprintln!("{rs:#?}");
        ctx.release(&a).await
    });
    outcome.result.unwrap();
}
#[test]
fn bomb_in_unstarted() {
    struct Bomb;
    impl Drop for Bomb { fn drop(&mut self) { if !std::thread::panicking() { panic!("bomb"); } } }
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let b = Bomb;
        let t = ctx.perform(Spawn::new(async move |ctx: Ctx| { let _b = b; ctx.delay(1.0).await }).priority(Priority::Idle)).await?;
        ctx.cancel(&t).await?;
        Ok(())
    });
    outcome.result.unwrap();
}
#[test]
fn stolen_wait() {
    // a future polled by one task, dropped by another
    use std::cell::RefCell; use std::rc::Rc; use std::pin::Pin;
    type F = Pin<Box<dyn Future<Output = Result>>>;
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        let slot: Rc<RefCell<Option<F>>> = Rc::default();
        let s = slot.clone();
        let t = ctx.spawn(async move |ctx: Ctx| {
            let c = ctx.clone();
            *s.borrow_mut() = Some(Box::pin(async move { c.delay(100.0).await }));
            std::future::poll_fn(|cx| match &mut *s.borrow_mut() { Some(f) => f.as_mut().poll(cx), None => std::task::Poll::Ready(Ok(())) }).await
        }).await?;
        drop(slot.take());
        ctx.delay(1.0).await?;
        assert!(t.is_finished());
        Ok(())
    });
    outcome.result.unwrap();
}
#[test]
fn million_failures_observed() {
    let outcome = Runtime::new().run(async |ctx: Ctx| {
        for _ in 0..10 {
            let t = ctx.spawn(async |_: Ctx| Err::<(), _>(Error::new("x"))).await?;
            let _ = ctx.wait(&t).await;
        }
        Ok(())
    });
    outcome.result.unwrap();
}
