use super::*;
use comb_types::Dice;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// What was written to one end is read at the other, in pieces.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<VecDeque<u8>>>);

impl Passage for Pipe {
    fn read(&mut self, buffer: &mut [u8], _: Duration) -> io::Result<usize> {
        let mut bytes = self.0.lock().unwrap();
        let count = bytes.len().min(buffer.len()).min(1 + bytes.len() / 3);
        bytes.drain(..count).zip(buffer).for_each(|(byte, to)| *to = byte);
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().extend(bytes);
        Ok(())
    }
}

fn machine() -> Machine {
    Machine {
        name: "a-1".into(),
        token: Token::new().unwrap(),
        hardware: Hardware { accelerator: Accelerator::Tcg, ..Hardware::default() },
        engine: "7.2".into(),
        processor: None,
        is_replaced: true,
        is_clone: true,
        is_outside: false,
        used_bytes: 5,
    }
}

fn offer() -> Offer {
    let what = What::Machine(Box::new(machine()));
    Offer { version: VERSION, what, image: "small".into(), digest: "0a".repeat(32) }
}

#[test]
fn what_is_said_is_heard() {
    let pipe = Pipe::default();
    let mut talk = Talk::new(Box::new(pipe));
    talk.offer(&offer()).unwrap();
    talk.pass_memory(&[7; PART_BYTES]).unwrap();
    talk.pass_part(8192, &[1, 2]).unwrap();
    talk.say(&Word::Refused("no\u{1b}[2J room".into())).unwrap();
    let limit = Duration::from_secs(1);
    match talk.word(limit).unwrap() {
        Word::Offer(text) => assert_eq!(Offer::read(&text).unwrap(), offer_like(&text)),
        other => panic!("{other:?}"),
    }
    assert_eq!(talk.next(limit).unwrap(), Heard::Memory(vec![7; PART_BYTES]));
    assert_eq!(talk.next(limit).unwrap(), Heard::Part { at: 8192, bytes: vec![1, 2] });
    // A sentence that moves no cursor.
    assert_eq!(talk.next(limit).unwrap_err().to_string(), "no [2J room");
    assert!(matches!(talk.next(limit), Err(MoveError::Refused(_) | MoveError::Lost(_))));
}

fn offer_like(text: &str) -> Offer {
    serde_json::from_str(text).unwrap()
}

#[test]
fn an_offer_that_this_host_does_not_understand_whole_is_not_taken() {
    let text = offer().text();
    Offer::read(&text).unwrap();
    let mut value: Value = serde_json::from_str(&text).unwrap();
    value["version"] = (VERSION + 1).into();
    let why = Offer::read(&value.to_string()).unwrap_err().to_string();
    assert!(why.contains("upgrade the older"), "{why}");
    // A later comb's hardware has something that this one would leave out.
    let mut value: Value = serde_json::from_str(&text).unwrap();
    value["what"]["Machine"]["hardware"]["wings"] = 2.into();
    let why = Offer::read(&value.to_string()).unwrap_err().to_string();
    assert!(why.contains("what this one does not know"), "{why}");
    for (path, bad) in [
        ("/image", Value::from("../x")),
        ("/digest", "0a".into()),
        ("/digest", "zz".repeat(32).into()),
        ("/what/Machine/name", "".into()),
        ("/what/Machine/hardware/memory_bytes", 4096.into()),
        ("/what/Machine/hardware/memory_bytes", u64::MAX.into()),
        ("/what/Machine/hardware/processors", 0.into()),
        ("/what/Machine/hardware/processors", 1000.into()),
        ("/what/Machine/token", Value::from(vec![1, 2])),
        ("/what", Value::Null),
    ] {
        let mut value: Value = serde_json::from_str(&text).unwrap();
        *value.pointer_mut(path).unwrap() = bad.clone();
        let error = Offer::read(&value.to_string()).unwrap_err();
        assert!(matches!(error, MoveError::Nonsense(_)), "{path} {bad}: {error}");
    }
    assert!(matches!(Offer::read("{"), Err(MoveError::Nonsense(_))));
}

#[test]
fn what_makes_no_sense_is_an_error_and_nothing_else() {
    let limit = Duration::from_millis(1);
    let rest =
        |came, execs| Word::Rest(Rest { came: vec![0; came], execs: vec![1; execs], ..Rest::default() });
    for word in [rest(Rest::MOST_BYTES + 1, 0), rest(0, Rest::MOST_EXECS + 1)] {
        let mut talk = Talk::new(Box::new(Pipe::default()));
        talk.say(&word).unwrap();
        assert!(matches!(talk.next(limit), Err(MoveError::Nonsense(_))));
    }
    for bytes in
        [&[0, 255, 255, 255, 255][..], &[3, 1, 0, 0, 0, 0], &[2, 2, 0, 0, 0, 1, 1], &[0, 2, 0, 0, 0, 5, 5]]
    {
        let pipe = Pipe::default();
        pipe.clone().write(bytes).unwrap();
        assert!(matches!(Talk::new(Box::new(pipe)).next(limit), Err(MoveError::Nonsense(_))), "{bytes:?}");
    }
    let mut dice = Dice::new(1);
    let (mut errors, mut heard) = (0, 0);
    for _ in 0..20_000 {
        let pipe = Pipe::default();
        let length = u8::try_from(dice.below(24)).unwrap();
        let byte = |dice: &mut Dice| u8::try_from(dice.below(256) >> dice.below(8)).unwrap();
        let content: Vec<u8> = (0..length).map(|_| byte(&mut dice)).collect();
        pipe.clone().write(&[u8::try_from(dice.below(3)).unwrap(), length, 0, 0, 0]).unwrap();
        pipe.clone().write(&content).unwrap();
        match Talk::new(Box::new(pipe)).next(limit) {
            Ok(_) => heard += 1,
            Err(_) => errors += 1,
        }
    }
    assert!(errors > 1000 && heard > 1000, "{errors} {heard}");
}

mod images {
    use super::super::files::*;
    use super::*;
    use crate::image::Images;
    use std::fs::{self, File};
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::path::Path;

    fn make(place: &Path, seed: u8) {
        fs::create_dir_all(place).unwrap();
        for name in ["version", "kernel", "initrd"] {
            fs::write(place.join(name), [seed; 5000]).unwrap();
        }
        let root = File::create(place.join("root")).unwrap();
        root.set_len(16 << 20).unwrap();
        for at in [0, 5 << 20, (16 << 20) - 100] {
            root.write_all_at(&[seed; 100], at).unwrap();
        }
    }

    #[test]
    fn an_image_arrives_as_it_was_beside_another_of_its_name() {
        let directory = std::env::temp_dir().join(format!("comb-vm-files-{}", std::process::id()));
        let [here, there] = ["here", "there"].map(|name| Images::at(directory.join(name)));
        let name: Name = "small".parse().unwrap();
        make(&here.place(&name), 1);
        let image = here.open(&name).unwrap();
        let wanted = digest(&image).unwrap();
        // The same without holes is the same.
        make(&there.place(&name), 1);
        let root = there.place(&name).join("root");
        let content = fs::read(&root).unwrap();
        fs::write(&root, content).unwrap();
        assert_eq!(find(&there, &name, &wanted).unwrap().unwrap().name, name);
        fs::remove_dir_all(there.place(&name)).unwrap();
        make(&there.place(&name), 2);
        assert_eq!(find(&there, &name, &wanted).unwrap(), None);
        for _ in 0..2 {
            let mut talk = Talk::new(Box::new(Pipe::default()));
            send(&mut talk, &image.directory, &OF_IMAGE).unwrap();
            let arrived = receive_image(&mut talk, &there, &name, &wanted).unwrap();
            assert_eq!(arrived.name.as_str(), format!("small-{}", &wanted[..8]));
            assert!(fs::metadata(arrived.directory.join("root")).unwrap().blocks() < 1024);
            assert!(find(&there, &name, &wanted).unwrap().is_some());
        }
        // Another than was said is not taken, and half of one leaves nothing.
        let other: Name = "other".parse().unwrap();
        for (is_whole, wanted) in [(true, "00".repeat(32)), (false, wanted)] {
            let mut talk = Talk::new(Box::new(Pipe::default()));
            let names = if is_whole { &OF_IMAGE[..] } else { &OF_IMAGE[..3] };
            send(&mut talk, &image.directory, names).unwrap();
            receive_image(&mut talk, &there, &other, &wanted).unwrap_err();
            assert!(!there.place(&other).exists());
        }
        assert_eq!(fs::read_dir(directory.join("there")).unwrap().count(), 2);
        // A part outside of its file.
        let mut talk = Talk::new(Box::new(Pipe::default()));
        talk.say(&Word::File { number: 0, bytes: 10 }).unwrap();
        talk.pass_part(u64::MAX - 1, &[1; 4]).unwrap();
        let error = receive(&mut talk, &directory, &["x"]).unwrap_err();
        assert!(matches!(error, MoveError::Nonsense(_)), "{error}");
        fs::remove_dir_all(directory).unwrap();
    }
}
