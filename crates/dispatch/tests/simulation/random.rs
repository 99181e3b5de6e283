//! Random numbers that are the same everywhere: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly among `from..=to`.
    pub fn range(&mut self, from: u64, to: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(to - from + 1);
        from + (wide >> 64) as u64
    }

    /// True in so many of a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.range(1, 100) <= percent
    }
}
