//! Speakers that exchange routes over an in-memory link, and a neighbour of which each byte is written here.

mod moves;
mod neighbour;
mod random;
mod world;
