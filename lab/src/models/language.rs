// SPDX-License-Identifier: Apache-2.0
//! BERT-base (Devlin et al., NAACL 2019), GPT-2 (Radford et al., 2019, the smallest) and the LSTM
//! of PyTorch's language-model example (1500 wide, tied, WikiText-2's 33,278 words; Merity et al.,
//! ICLR 2018). Attention's own multiplications have no parameters, and are left out.

use super::shape::Network;

pub(super) fn bert_base() -> Network {
    let mut network = Network::new("BERT-base", 1024.0);
    let (width, words) = (768, 30_522);
    // The look-up is one; as the decoder of the pre-training's head the same matrix multiplies.
    network.matrix("bert.embeddings.word_embeddings.weight", words * width, 1);
    network.plain("bert.embeddings.position_embeddings.weight", 512 * width);
    network.plain("bert.embeddings.token_type_embeddings.weight", 2 * width);
    network.norm("bert.embeddings.LayerNorm", width);
    for layer in 0..12 {
        let name = |part: &str| format!("bert.encoder.layer.{layer}.{part}");
        for part in ["query", "key", "value"] {
            network.linear(&name(&format!("attention.self.{part}")), width, width);
        }
        network.linear(&name("attention.output.dense"), width, width);
        network.norm(&name("attention.output.LayerNorm"), width);
        network.linear(&name("intermediate.dense"), width, 4 * width);
        network.linear(&name("output.dense"), 4 * width, width);
        network.norm(&name("output.LayerNorm"), width);
    }
    network.linear("bert.pooler.dense", width, width);
    network.plain("cls.predictions.bias", words);
    network.linear("cls.predictions.transform.dense", width, width);
    network.norm("cls.predictions.transform.LayerNorm", width);
    network.plain("cls.predictions.decoder.bias", words);
    network.linear("cls.seq_relationship", width, 2);
    network
}

pub(super) fn gpt2() -> Network {
    let mut network = Network::new("GPT-2", 80.0);
    let width = 768;
    network.matrix("wte.weight", 50_257 * width, 1);
    network.plain("wpe.weight", 1024 * width);
    for layer in 0..12 {
        let name = |part: &str| format!("h.{layer}.{part}");
        network.norm(&name("ln_1"), width);
        network.linear(&name("attn.c_attn"), width, 3 * width);
        network.linear(&name("attn.c_proj"), width, width);
        network.norm(&name("ln_2"), width);
        network.linear(&name("mlp.c_fc"), width, 4 * width);
        network.linear(&name("mlp.c_proj"), 4 * width, width);
    }
    network.norm("ln_f", width);
    network
}

pub(super) fn lstm() -> Network {
    let mut network = Network::new("LSTM", 80.0);
    let (width, words) = (1500, 33_278);
    network.matrix("encoder.weight", words * width, 1);
    for layer in 0..2 {
        network.matrix(format!("rnn.weight_ih_l{layer}"), 4 * width * width, 1);
        network.matrix(format!("rnn.weight_hh_l{layer}"), 4 * width * width, 1);
        network.plain(format!("rnn.bias_ih_l{layer}"), 4 * width);
        network.plain(format!("rnn.bias_hh_l{layer}"), 4 * width);
    }
    network.plain("decoder.bias", words);
    network
}
