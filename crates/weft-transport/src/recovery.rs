//! Loss recovery mechanisms: the receiver's treatment of packets out of order, and the sender's of their reports.
//! `docs/design/loss.md` compares the four.

weft_units::registry! {
    /// The name of a loss recovery mechanism. Both ends of a connection use the same one.
    #[non_exhaustive]
    pub enum Kind: "loss recovery" {
        ///
        /// Every packet is placed; a packet is lost when a later one of its own path was placed.
        PerPath => "per-path", "lost when overtaken on its own path, whatever other paths do";
        ///
        /// Every packet is placed, and the receiver requests the missing ones (IRN; Mittal et al., SIGCOMM 2018).
        Irn => "irn", "lost when the receiver reports it: selective repeat after a NACK (IRN)";
        ///
        /// The receiver refuses packets out of order, and the sender resumes from the lost one (`RoCEv2` NICs before
        /// selective repeat; IBTA 1.4, section 9.7).
        GoBackN => "go-back-n", "only in order: all packets after a loss are retransmitted (RoCE)";
        ///
        /// Every packet is placed; a packet is lost when no ACK covered it for the retransmission timeout, however many
        /// later ones arrived (STELLAR, section 7.2).
        Timeout => "timeout", "lost when its timeout passes, never sooner (STELLAR, section 7.2)";
    }
}
