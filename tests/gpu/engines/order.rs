//! Order of the JPEG engines' writes relative to the work in a stream. On Hopper, the engines write
//! while the function that decodes runs, not when the stream reaches the decoding.

use super::*;

/// Shows a hazard of Hopper's engines. A reader's work is still queued in its stream, and the
/// stream of the next batch waits for the reader's event. The engines write nevertheless, so the
/// reader gets the pixels of the next batch. Only a wait on the host prevents this, and a
/// [`HostIdle`] proves such a wait. On other GPUs, the stamps that detect skipped images have the
/// same hazard.
#[test]
fn hopper_writes_ahead_of_the_stream_and_only_a_wait_on_the_host_helps() {
    let Some(machine) = exclusive() else { return };
    let window = IMAGE.window();
    let (first, second) = (file(IMAGE, 1), file(IMAGE, 2));
    let run = |machine: &Simulated, hopper: bool, through_the_host: bool| {
        machine.hopper(hopper);
        machine.schedule(Schedule::Lazy);
        let mut setup = setup(1, 1 << 20).unwrap();
        let consumer = Stream::new(setup.stream.device()).unwrap();
        let seen = setup.memory.buffer("copies", PAGE_BYTES).unwrap();
        setup.decode(std::slice::from_ref(&first), window).unwrap();
        setup.decoder.done().synchronize().unwrap();
        // The consumer's copy of the first image is queued, and has not run.
        copy(&consumer, &seen, &setup.pages[0].pixels, ROWS_BYTES);
        setup.pages[0].used.record(&consumer).unwrap();
        setup.stream.wait(&setup.pages[0].used).unwrap();
        setup.pages[0].read(&second);
        let page = &setup.pages[0];
        // If `through_the_host` is false, the job gets an event that was never recorded, so
        // `decode` waits for nothing.
        let unrelated = Event::new(setup.stream.device()).unwrap();
        let last_use = if through_the_host { &page.used } else { &unrelated };
        let job = BatchJob {
            bytes: &page.encoded[..page.bytes],
            image: IMAGE,
            wanted: window,
            reduction: 1,
            destination: HostIdle::wait(&page.pixels, last_use).unwrap(),
        };
        setup.decoder.decode(&setup.stream, &[job]).unwrap();
        let mut bytes = vec![0; ROWS_BYTES];
        read_back(&consumer, &seen, 0, &mut bytes).unwrap();
        // The second image is always correct. If `through_the_host` is false, the reader of the
        // first image gets wrong pixels.
        assert_eq!(setup.pixels(0, window).unwrap(), pattern(&second, window));
        dense(&bytes, window) == pattern(&first, window)
    };
    assert!(!run(&machine, true, false), "hopper must not keep the stream's order");
    assert!(run(&machine, true, true), "hopper, after a wait on the host");
    assert!(!run(&machine, false, false), "stamps must be written during the call");
    assert!(run(&machine, false, true));
    assert_clean(&machine, "hazard");
}

/// Shows the opposite hazard: a fill that was queued in the stream before the batch runs after the
/// engines' writes, and overwrites the pixels.
#[test]
fn hopper_lets_earlier_work_of_the_stream_overwrite_the_pixels() {
    let Some(machine) = exclusive() else { return };
    let window = IMAGE.window();
    for (hopper, through_the_host, right) in
        [(true, false, false), (true, true, true), (false, false, true), (false, true, true)]
    {
        machine.hopper(hopper);
        machine.schedule(Schedule::Lazy);
        let mut setup = setup(1, 1 << 20).unwrap();
        setup.pages[0].read(&file(IMAGE, 1));
        fill(&setup.stream, &setup.pages[0].pixels, 0..PAGE_BYTES, 7).unwrap();
        if through_the_host {
            setup.pages[0].used.record(&setup.stream).unwrap();
        }
        // If `through_the_host` is false, nothing was recorded in `used`, so `job` waits for
        // nothing.
        let job = setup.pages[0].job(window).unwrap();
        setup.decoder.decode(&setup.stream, &[job]).unwrap();
        let is_right = setup.pixels(0, window).unwrap() == pattern(&file(IMAGE, 1), window);
        assert_eq!(is_right, right, "hopper {hopper}, host waits {through_the_host}");
    }
    assert_clean(&machine, "overwritten");
}

#[test]
fn a_buffer_is_known_to_be_free_when_its_event_completes() {
    let Some(machine) = exclusive() else { return };
    machine.schedule(Schedule::Lazy);
    let setup = setup(1, 1 << 20).unwrap();
    let Page { pixels, used, .. } = &setup.pages[0];
    assert!(HostIdle::query(pixels, used).unwrap().is_some(), "a buffer without uses must be idle");
    fill(&setup.stream, pixels, 0..PAGE_BYTES, 7).unwrap();
    used.record(&setup.stream).unwrap();
    assert!(HostIdle::query(pixels, used).unwrap().is_none());
    let seen = HostIdle::wait(pixels, used).unwrap();
    assert_eq!(seen.buffer().address(), pixels.address());
    assert!(HostIdle::query(pixels, used).unwrap().is_some());
}
