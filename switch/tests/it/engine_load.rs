// SPDX-License-Identifier: Apache-2.0
//! Loading programs: everything p4c makes of our test programs loads; what does not is refused by
//! name.
use trimwire_switch::engine::Pipeline;

#[test]
fn every_test_program_loads() {
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/engine")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let json = std::fs::read(&path).unwrap();
            if let Err(error) = Pipeline::load(&json) {
                panic!("{}: {error}", path.display());
            }
        }
    }
}
