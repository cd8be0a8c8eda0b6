//! The golden transcripts are whole and give nothing of the machine away.

use std::fs;
use std::path::Path;

use drowse_tests::golden::{Direction, load};
use serde_json::Value;

#[test]
fn every_transcript_loads_and_names_no_machine_path() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut seen = 0;
    for agent in ["claude", "codex", "pi"] {
        for entry in fs::read_dir(folder.join(agent)).unwrap() {
            let file = entry.unwrap().path();
            let name = format!("{agent}/{}", file.file_stem().unwrap().to_str().unwrap());
            let lines = load(&name);
            assert_eq!(lines[0].direction, Direction::Meta, "{name}");
            for line in lines.iter().filter(|line| line.direction == Direction::Out) {
                assert!(line.json() != Value::Null, "{name}: {}", line.line);
                for path in ["/tmp/golden", "/agents/", "/root/", "/work/"] {
                    assert!(!line.line.contains(path), "{name}: {}", line.line);
                }
            }
            seen += 1;
        }
    }
    assert!(seen > 50);
}
