// SPDX-License-Identifier: Apache-2.0
//! From values to places on an axis, and the ticks between.

use super::{Axis, Unit};

/// Ticks that an axis aims at.
const TICKS: f64 = 6.0;

/// An axis that is so many units of the drawing long.
pub(super) struct Scale {
    from: f64,
    to: f64,
    logarithmic: bool,
    length: f64,
}

impl Scale {
    /// Of the axis' range, or of the values that it shows.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>, length: f64) -> Self {
        let shown = values.filter(|value| axis.shows(*value));
        let (least, most) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        let [mut from, mut to] = axis.range.unwrap_or(if least <= most { [least, most] } else { [1.0, 2.0] });
        if axis.logarithmic {
            (from, to) = (from.log10(), to.log10());
        }
        if to <= from {
            // One value: the axis shows it in its middle.
            let around = if axis.logarithmic { 0.5 } else { from.abs().max(1e-9) / 2.0 };
            (from, to) = (from - around, to + around);
        } else if axis.range.is_none() {
            let margin = (to - from) / 40.0;
            // An axis that begins at zero stays there.
            from = if from == 0.0 && !axis.logarithmic { 0.0 } else { from - margin };
            to += margin;
        }
        Self { from, to, logarithmic: axis.logarithmic, length }
    }

    /// Place of a value, from the begin of the axis.
    pub(super) fn place(&self, value: f64) -> f64 {
        let at = if self.logarithmic { value.log10() } else { value };
        (at - self.from) / (self.to - self.from) * self.length
    }

    /// Values with their words. Steps are 1, 2 and 5 times a power of ten.
    pub(super) fn ticks(&self, axis: &Axis) -> Vec<(f64, String)> {
        if !axis.names.is_empty() {
            return axis.names.clone();
        }
        if self.logarithmic {
            let decades = self.to - self.from;
            let within: &[f64] = match () {
                () if decades < 2.0 => &[1.0, 2.0, 5.0],
                () => &[1.0],
            };
            let every = (decades / TICKS).ceil().max(1.0) as i32;
            let powers = self.from.floor() as i32..=self.to.ceil() as i32;
            let values = powers
                .filter(|power| power.rem_euclid(every) == 0)
                .flat_map(|power| within.iter().map(move |digit| digit * 10_f64.powi(power)));
            let inside = values.filter(|value| (self.from..=self.to).contains(&value.log10()));
            // Each has its own prefix: 500 µs, 1 ms.
            return inside.map(|value| (value, words(axis.unit, value, value))).collect();
        }
        let step = step((self.to - self.from) / TICKS);
        let largest = self.from.abs().max(self.to.abs());
        let numbers = (self.from / step).ceil() as i64..=(self.to / step).floor() as i64;
        // All have the prefix of the largest: 0.5 ms, 1 ms.
        numbers.map(|at| at as f64 * step).map(|value| (value, words(axis.unit, value, largest))).collect()
    }
}

/// 1, 2 or 5 times a power of ten, no less than this.
fn step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|&step| step >= least).unwrap_or(least)
}

/// A value in the unit and prefix that suit `largest`.
fn words(unit: Unit, value: f64, largest: f64) -> String {
    let prefixes: &[(f64, &str)] = match unit {
        Unit::Seconds => &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")],
        Unit::Bytes => &[(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")],
        Unit::Share => &[(0.01, "%")],
        Unit::Plain => {
            return if value != 0.0 && !(1e-3..1e5).contains(&value.abs()) {
                format!("{value:e}")
            } else {
                number(value)
            };
        }
    };
    let fits = prefixes.iter().find(|(factor, _)| largest.abs() >= factor * 0.999_999);
    let Some((factor, name)) = fits.or(prefixes.last()) else { return number(value) };
    format!("{} {name}", number(value / factor))
}

/// Without the noise of binary fractions.
fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: &Axis, from: f64, to: f64) -> Vec<String> {
        let scale = Scale::new(axis, [from, to].into_iter(), 100.0);
        scale.ticks(axis).into_iter().map(|(_, words)| words).collect()
    }

    #[test]
    fn ticks_of_a_linear_axis_have_one_unit() {
        let time = Axis::linear("time", Unit::Seconds);
        assert_eq!(ticks(&time, 0.0, 0.002), ["0 ms", "0.5 ms", "1 ms", "1.5 ms", "2 ms"]);
        assert_eq!(ticks(&time, 0.0, 0.9), ["0 ms", "200 ms", "400 ms", "600 ms", "800 ms"]);
        assert_eq!(ticks(&Axis::linear("", Unit::Share), 0.0, 1.0)[1], "20 %");
        assert_eq!(ticks(&Axis::linear("", Unit::Bytes), 0.0, 250_000.0)[1], "50 kB");
    }

    #[test]
    fn ticks_of_a_logarithmic_axis_have_the_prefix_of_each() {
        let time = Axis::logarithmic("time", Unit::Seconds);
        assert_eq!(ticks(&time, 2e-4, 2e-3), ["200 µs", "500 µs", "1 ms", "2 ms"]);
        assert_eq!(ticks(&Axis::logarithmic("", Unit::Plain), 1e-12, 1.0).last().unwrap(), "1");
    }

    #[test]
    fn one_value_is_in_the_middle_and_ends_are_at_the_ends() {
        let axis = Axis::linear("", Unit::Plain);
        assert_eq!(Scale::new(&axis, [3.0].into_iter(), 100.0).place(3.0), 50.0);
        let fixed = Axis { range: Some([0.0, 2.0]), ..axis };
        let scale = Scale::new(&fixed, std::iter::empty(), 100.0);
        assert_eq!([0.0, 1.0, 2.0].map(|value| scale.place(value)), [0.0, 50.0, 100.0]);
    }
}
