//! What may be said of a sample whose variance could be infinite. (Thesis §9.7)
