//! A map and a tree of strings, sorted by several threads.
use std::collections::{BTreeMap, HashMap};
use std::thread;

fn words(seed: u64) -> Vec<String> {
    let mut list: Vec<String> =
        (0..250_000u64).map(|i| format!("entry {} of {}", (i * 7919 + seed) % 1_000_003, seed)).collect();
    list.sort();
    list
}

fn main() {
    let threads: Vec<_> = (0..4).map(|seed| thread::spawn(move || words(seed))).collect();
    let mut index = HashMap::new();
    let mut tree = BTreeMap::new();
    for handle in threads {
        for (at, word) in handle.join().unwrap().into_iter().enumerate() {
            tree.insert(word.clone(), at);
            index.insert(word, at as u64);
        }
    }
    let mut sum = 7u64;
    for (word, at) in &tree {
        sum = (sum * 31 + word.len() as u64 + *at as u64 + index[word]) % 1_000_000_007;
    }
    println!("{} {}", tree.len(), sum);
}
