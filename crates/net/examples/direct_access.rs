//! A sensor puts readings straight into its reader's memory, and reads the reader's settings without asking.
//! Run: `cargo run --release -p comb-net --example direct_access`

use std::time::{Duration, Instant};

use comb_net::{Access, InProcess, PutNotice};

const SOON: Duration = Duration::from_secs(5);
const PUTS: u64 = 20_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = InProcess::start();
    let mut reader = agent.connect("reader")?.endpoint("in")?;
    let mut sensor = agent.connect("sensor")?.endpoint("out")?;
    let to_reader = sensor.open("reader/in")?;
    let to_sensor = reader.accept(SOON).ok_or("nobody came")?;

    // Two windows of the reader's: the sensor may put into one, and only get from the other.
    let readings = reader.make_window(to_sensor, 4096, Access::Put)?;
    let settings = reader.make_window(to_sensor, 64, Access::Get)?;
    settings.write(0, b"celsius")?;
    let (readings_number, settings_number) = (readings.number(), settings.number());

    let work = std::thread::spawn(move || {
        let readings = sensor.window_numbered(to_reader, readings_number, SOON).unwrap();
        let settings = sensor.window_numbered(to_reader, settings_number, SOON).unwrap();
        let mut unit = [0; 7];
        sensor.get(&settings, 0, &mut unit).unwrap();
        println!("sensor: the reader wants {}", String::from_utf8_lossy(&unit));
        println!("sensor: a put there? {}", sensor.put(&settings, 0, b"kelvin").unwrap_err());
        sensor.put_notify(&readings, 512, b"21.5 degrees").unwrap();

        // Put a word, wait for its echo in the window: the round trip of a bare ping-pong.
        for round in 1..=PUTS {
            sensor.put(&readings, 0, &round.to_le_bytes()).unwrap();
            let mut echo = [0; 8];
            while u64::from_le_bytes(echo) != round {
                sensor.get(&readings, 64, &mut echo).unwrap();
                std::hint::spin_loop();
            }
        }
        (sensor, readings)
    });

    let mut buffer = [0; 64];
    let got = reader.receive_within(&mut buffer, SOON)?.ok_or("no notice")?;
    let notice = PutNotice::decode(got.kind, &buffer[..got.bytes]).ok_or("no notice")?;
    readings.check(got.channel, &notice)?;
    let mut text = vec![0; usize::try_from(notice.bytes)?];
    readings.read(usize::try_from(notice.offset)?, &mut text)?;
    println!("reader: at {} stands {:?}", notice.offset, String::from_utf8_lossy(&text));

    let started = Instant::now();
    for round in 1..=PUTS {
        while readings.word(0)? != round {
            std::hint::spin_loop();
        }
        readings.write(64, &round.to_le_bytes())?;
    }
    println!("reader: {:?} a round trip of puts", started.elapsed() / u32::try_from(PUTS)?);

    let (mut sensor, remote) = work.join().map_err(|_| "the sensor failed")?;
    readings.withdraw();
    println!("sensor: a late put? {}", sensor.put(&remote, 0, b"late").unwrap_err());
    Ok(())
}
