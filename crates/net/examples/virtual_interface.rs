//! A client sends a request over a virtual interface; the server answers by writing straight into its memory.
//! Run: `cargo run --release -p comb-net --example virtual_interface`

use std::time::Duration;

use comb_net::via::{Descriptor, InterfaceOptions, Interfaces, Side, Span};
use comb_net::{Access, InProcess};

const SOON: Duration = Duration::from_secs(5);

fn server(mut via: Interfaces) -> Result<(), Box<dyn std::error::Error>> {
    let tag = via.new_tag();
    let queue = via.new_queue();
    let interface =
        via.new_interface(InterfaceOptions { receive_queue: Some(queue), ..InterfaceOptions::new(tag) });
    // Header and body of a request go to two places.
    let memory = via.register(vec![0; 1024], tag);
    let (header, body) = (Span { memory, offset: 0, bytes: 4 }, Span { memory, offset: 512, bytes: 512 });
    // Two requests' worth of room, before anybody can send one.
    for _ in 0..2 {
        via.post_receive(interface, Descriptor::receive(&[header, body]))?;
    }
    println!("server: {} connected", via.accept(interface, SOON)?);

    let request = via.from_queue_within(queue, SOON).ok_or("no request")?;
    let bytes = request.outcome? - header.bytes;
    let mut text = vec![0; bytes];
    via.read(memory, body.offset, &mut text)?;
    let window = request.immediate.ok_or("the request names no window")?;
    println!("server: asked for {:?}, answer into window {window}", String::from_utf8_lossy(&text));

    via.take_window(interface, window, SOON)?;
    text.make_ascii_uppercase();
    via.write(memory, 512, &text)?;
    let answer = Span { memory, offset: 512, bytes };
    via.post_send(interface, Descriptor::rdma_write(&[answer], window, 64).with_immediate(64))?;
    via.done_within(interface, Side::Send, SOON).ok_or("not written")?.outcome?;

    let next = via.from_queue_within(queue, SOON).ok_or("nothing more")?;
    println!("server: {}", next.outcome.err().ok_or("no error")?);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = InProcess::start();
    let there = Interfaces::new(agent.connect("server")?.endpoint("desk")?);
    let mut via = Interfaces::new(agent.connect("client")?.endpoint("desk")?);
    let work = std::thread::spawn(|| server(there).map_err(|error| error.to_string()));

    let tag = via.new_tag();
    let interface = via.new_interface(InterfaceOptions::new(tag));
    via.connect(interface, "server/desk", SOON)?;
    let inbox = via.register_window(interface, 4096, Access::Put)?;
    let window = via.window_number(inbox).ok_or("no window")?;
    let memory = via.register(b"GET hello, world".to_vec(), tag);
    // The answer's notice takes a receive descriptor, though it brings no bytes.
    via.post_receive(interface, Descriptor::receive(&[]))?;
    let request = Span { memory, offset: 0, bytes: 16 };
    via.post_send(interface, Descriptor::send(&[request]).with_immediate(window))?;

    let notice = via.done_within(interface, Side::Receive, SOON).ok_or("no answer")?;
    let (offset, bytes) = (notice.immediate.ok_or("no offset")?, notice.outcome?);
    let mut answer = vec![0; bytes];
    via.read(inbox, offset as usize, &mut answer)?;
    println!("client: at {offset} of window {window} stands {:?}", String::from_utf8_lossy(&answer));
    via.disconnect(interface);
    work.join().map_err(|_| "the server failed")??;
    Ok(())
}
