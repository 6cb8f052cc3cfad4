//! A training loop in Rust that logs into a run.
//!
//! `truegauge up` in one terminal, `cargo run -p client --example train` in another. Without a
//! server the run is kept on disk, and the last line says how to see it.
//!
//! The model is a logistic regression with 20 weights, trained by stochastic gradient descent on
//! points that a hidden model labels, so the loss falls towards that of the hidden model.
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::time::Instant;

use client::{Config, Run, StartError};
use model::AttributeValue;

const WEIGHTS: usize = 20;
const BATCH: usize = 256;
const STEPS: i64 = 2_000;
const LEARNING_RATE: f64 = 0.5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let run = start()?;
    if let Some(url) = run.url() {
        println!("{url}");
    }
    let loss = run.series("train/loss", &[], "")?;
    let accuracy = run.series("train/accuracy", &[], "")?;
    let gradient_norm = run.series("train/gradient_norm", &[], "")?;
    let throughput = run.series("train/samples_per_second", &[], "")?;

    let mut random = Random(7);
    let hidden: [f64; WEIGHTS] = std::array::from_fn(|_| random.normal());
    let mut weights = [0.0; WEIGHTS];
    for step in 0..STEPS {
        let started = Instant::now();
        let batch = Batch::draw(&mut random, &hidden);
        let outcome = batch.descend(&mut weights);
        run.begin_step(step);
        run.log(loss, outcome.loss, None, None);
        run.log(accuracy, outcome.accuracy, None, None);
        run.log(gradient_norm, outcome.gradient_norm, None, None);
        run.log(throughput, BATCH as f64 / started.elapsed().as_secs_f64(), None, None);
        run.end_step();
        if step % 200 == 0 {
            println!("step {step:5}  loss {:.4}  accuracy {:.3}", outcome.loss, outcome.accuracy);
        }
    }
    run.finish();
    let counters = run.counters();
    println!("{} points logged, {} with the server", counters.logged, counters.delivered);
    Ok(())
}

/// The environment decides where the run goes; what it leaves open is set here.
fn start() -> Result<Run, StartError> {
    let mut config = Config::from_env();
    if config.path.project.is_empty() {
        config.path.project = "examples".into();
    }
    config.config = vec![
        ("learning_rate".into(), AttributeValue::Float(LEARNING_RATE)),
        ("batch".into(), AttributeValue::Int(BATCH as i64)),
    ];
    Run::start(config)
}

/// Inputs and what the hidden model calls them.
struct Batch {
    inputs: Vec<[f64; WEIGHTS]>,
    labels: Vec<bool>,
}

struct Outcome {
    loss: f64,
    accuracy: f64,
    gradient_norm: f64,
}

impl Batch {
    fn draw(random: &mut Random, hidden: &[f64; WEIGHTS]) -> Self {
        let inputs: Vec<[f64; WEIGHTS]> =
            (0..BATCH).map(|_| std::array::from_fn(|_| random.normal())).collect();
        let labels = inputs.iter().map(|x| random.uniform() < sigmoid(dot(x, hidden))).collect();
        Self { inputs, labels }
    }

    /// One step of gradient descent on the cross-entropy.
    fn descend(&self, weights: &mut [f64; WEIGHTS]) -> Outcome {
        let (mut loss, mut right, mut gradient) = (0.0, 0, [0.0; WEIGHTS]);
        for (x, label) in self.inputs.iter().zip(&self.labels) {
            let p = sigmoid(dot(x, weights)).clamp(1e-12, 1.0 - 1e-12);
            loss -= if *label { p.ln() } else { (1.0 - p).ln() };
            right += i32::from((p > 0.5) == *label);
            let error = p - f64::from(u8::from(*label));
            for (g, x) in gradient.iter_mut().zip(x) {
                *g += error * x / BATCH as f64;
            }
        }
        for (w, g) in weights.iter_mut().zip(&gradient) {
            *w -= LEARNING_RATE * g;
        }
        Outcome {
            loss: loss / BATCH as f64,
            accuracy: f64::from(right) / BATCH as f64,
            gradient_norm: dot(&gradient, &gradient).sqrt(),
        }
    }
}

fn dot(a: &[f64; WEIGHTS], b: &[f64; WEIGHTS]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A generator of its own, so that the example needs no crate for it and repeats itself.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}
