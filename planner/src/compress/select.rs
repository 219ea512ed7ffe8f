// SPDX-License-Identifier: Apache-2.0
//! Which values to send.

/// Of `count` values, how many a ratio is: at least one, where there are any.
pub(super) fn share(count: usize, ratio: f64) -> usize {
    ((count as f64 * ratio.clamp(0.0, 1.0)).round() as usize).clamp(count.min(1), count)
}

/// Places of the `k` values of largest magnitude, ascending; of equal ones the first.
pub(super) fn largest(values: &[f32], k: usize) -> Vec<u32> {
    let mut places: Vec<u32> = (0..values.len() as u32).collect();
    let order = |a: &u32, b: &u32| {
        let [a_value, b_value] = [a, b].map(|place| values[*place as usize].abs());
        b_value.total_cmp(&a_value).then(a.cmp(b))
    };
    if k > 0 && k < places.len() {
        places.select_nth_unstable_by(k - 1, order);
    }
    places.truncate(k);
    places.sort_unstable();
    places
}

/// `k` of `count` places by chance, ascending: the same for all ranks that have the same seed, so that their values can be added up.
pub(super) fn random(count: usize, k: usize, seed: u64) -> Vec<u32> {
    let mut state = seed;
    let mut places: Vec<u32> = (0..count as u32).collect();
    for i in 0..k.min(count) {
        let left = (count - i) as u64;
        places.swap(i, i + (splitmix(&mut state) % left) as usize);
    }
    places.truncate(k);
    places.sort_unstable();
    places
}

/// The magnitude that a share of `ratio` of the values exceeds, from a sample of every `stride`-th (DGC, Lin et al., ICLR 2018, §3.1: sampling a hundredth).
pub(super) fn threshold(values: &[f32], ratio: f64, stride: usize) -> f32 {
    let mut sample: Vec<f32> = values.iter().step_by(stride.max(1)).map(|value| value.abs()).collect();
    let k = share(sample.len(), ratio);
    if k == 0 {
        return 0.0;
    }
    *sample.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
