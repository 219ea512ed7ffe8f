// SPDX-License-Identifier: Apache-2.0
//! What follows for importance from one step to the next, and layer classes between messages.

use super::message::Message;
use crate::encode::importance::Importance;

/// What the rows of some tensors were worth one step ago, from which the next step's importance
/// follows: a row is important if its energy per coordinate is at least the upper median of the
/// last step's. Kept by whoever encodes the same tensors step by step; before the first step all
/// rows are important.
///
/// ```
/// # use trimwire_encoder::*;
/// # let layout = Layout::new(100_000, DEFAULT_COORDINATES_PER_PACKET)?;
/// # let (encoder, gradient) = (Encoder::new(layout, Job::new(1)), vec![0.5f32; 100_000]);
/// # let envelope = Envelope { stream: StreamId::new(0, 0).unwrap(), message: 1 };
/// # let mut message = Message::default();
/// let mut figures = RowFigures::default(); // of these tensors; lives as long as the training
/// let choice = RowChoice { importance: figures.importance(), ..RowChoice::whole(Codec::Rht) };
/// encoder.encode_with(&gradient, envelope, |_row| choice, &mut message)?;
/// figures.learn(&message);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct RowFigures {
    figures: Vec<f64>,
    median: Option<f64>,
}

impl RowFigures {
    /// Of each row of the coming step.
    pub fn importance(&self) -> Importance {
        self.median.map_or(Importance::Always, Importance::AtLeast)
    }

    /// Takes a step's figures from its encoded message.
    pub fn learn(&mut self, message: &Message) {
        self.learn_from(message.rows().iter().map(|row| row.figure));
    }

    /// Takes a step's figures, in any order ([`crate::EncodedRow::figure`]). Rows that are not
    /// finite do not count; of a step of none but such nothing is learnt.
    pub fn learn_from(&mut self, figures: impl IntoIterator<Item = f64>) {
        self.figures.clear();
        self.figures.extend(figures.into_iter().filter(|figure| figure.is_finite()));
        let middle = self.figures.len() / 2;
        if !self.figures.is_empty() {
            self.median = Some(*self.figures.select_nth_unstable_by(middle, f64::total_cmp).1);
        }
    }
}

/// The class of layer `layer` (0 = the front, which the next step needs first) among `layers`:
/// ⌊layer · classes / layers⌋ (MLT §4.2.2). `classes` is at most 8, the header's three bits; layers
/// beyond the last count as the last.
pub fn layer_class(layer: usize, layers: usize, classes: u8) -> u8 {
    let classes = usize::from(classes.clamp(1, 8));
    let layer = layer.min(layers.saturating_sub(1));
    (layer * classes / layers.max(1)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_spread_evenly_over_the_classes_front_first() {
        let classes: Vec<u8> = (0..10).map(|layer| layer_class(layer, 10, 4)).collect();
        assert_eq!(classes, [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]);
        assert_eq!([layer_class(0, 0, 0), layer_class(99, 3, 8), layer_class(5, 6, 200)], [0, 5, 6]);
    }

    #[test]
    fn the_upper_half_of_the_last_step_s_figures_is_important_in_the_next() {
        let mut figures = RowFigures::default();
        assert_eq!(figures.importance(), Importance::Always);
        figures.learn_from([4.0, f64::NAN, 1.0, 3.0, 2.0]);
        assert_eq!(figures.importance(), Importance::AtLeast(3.0));
        figures.learn_from([f64::NAN]);
        assert_eq!(figures.importance(), Importance::AtLeast(3.0), "nothing learnt, nothing forgotten");
        figures.learn_from([7.0]);
        assert_eq!(figures.importance(), Importance::AtLeast(7.0));
    }
}
